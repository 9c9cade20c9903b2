-- How a process of the fleet enters its list. Its script has the arguments name, incarnation, lease_ms and n_pairs, and
-- behind them pairs of the process's hash (pid, hostname, ...). The first of a fleet writes down which layout the data
-- have, if nobody has.
-- Acts: writes the schema down where there is none
-- INCLUDE: member layout time life
if not (schema[1] and schema[2] and schema[3]) then begin_layout(A_name, is_new()) end

local function write_member(key, ttl)
  redis.call('HSETNX', key, 'birth', now_iso)
  redis.call('HSET', key, 'incarnation', A_incarnation, 'schema', SCHEMA, 'lease_ms', A_lease_ms, 'last_heartbeat',
    now_iso, 'beat_ms', now_ms, unpack(ARGV, REST, REST + A_n_pairs - 1))
  redis.call('EXPIRE', key, ttl)
end

-- Into a list that is scored by the last signs of life (ms), or there once more. False if a live other has the name.
local function enter_list(key, list, ttl)
  local known, beat, lease = unpack(redis.call('HMGET', key, 'incarnation', 'beat_ms', 'lease_ms'))
  if known and known ~= A_incarnation then
    local silent = silence(key, beat)
    if silent and silent <= (tonumber(lease) or tonumber(A_lease_ms)) then return false end
    redis.call('DEL', key)
  end
  redis.call('ZADD', list, now_ms, A_name)
  write_member(key, ttl)
  return true
end

-- Those that have been silent for a minute longer than their lease leave the list, a few at a time. `prefix`: of the
-- keys of their hashes.
local function drop_silent(list, prefix)
  -- the clock was set back since
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', list, '(' .. now_ms, '+inf', 'LIMIT', 0, 20)) do
    silence(prefix .. name, redis.pcall('HGET', prefix .. name, 'beat_ms'))
    redis.call('ZADD', list, now_ms, name)
  end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', list, '-inf', now_ms - A_lease_ms - 60000, 'LIMIT', 0, 20)) do
    local last, granted = unpack(redis.pcall('HMGET', prefix .. name, 'beat_ms', 'lease_ms'))
    local silent = silence(prefix .. name, last)
    if not silent or silent > (tonumber(granted) or 0) + 60000 then
      redis.call('DEL', prefix .. name)
      redis.call('ZREM', list, name)
    end
  end
end
