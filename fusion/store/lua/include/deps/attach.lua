-- A job is bound to its parents.
-- INCLUDE: keys ties releasing kin states
-- RARER: attach first_missing must_wait parents_of name_child begin_anew waits_for
-- Uses: tied
local MOST_NAMED = 1000

-- The members of a list of parents as it was sent.
local function parents_of(text)
  local ok, found = pcall(cjson.decode, text)
  if not ok or type(found) ~= 'table' then error('ERR a list of parents is none', 0) end
  return found
end

-- The first parent of which there is no job of ours, neither in Redis nor among `sent`. A key of a wrong type shows
-- here, before anything is written.
local function first_missing(parents, sent)
  for _, member in ipairs(parents) do
    local _, id = parent_in(member)
    redis.call('ZCARD', children_key(id))
    if not (sent and sent[id]) and not redis.call('HGET', job_key(id), 'seq') then return id end
  end
end

-- Whether a parent in this state has the child wait. `again`: a person put it back, and it waits for those alone that
-- have not ended.
local function waits_for(sign, status, again)
  if not status or status == 'finished' then return false end
  return not is_terminal(status) or not again and sign ~= '?'
end

-- `sent`: ids of jobs that the same call is about to write down.
local function must_wait(parents, sent)
  for _, member in ipairs(parents) do
    local sign, id = parent_in(member)
    if sent and sent[id] or waits_for(sign, redis.call('HGET', job_key(id), 'status')) then return true end
  end
  return false
end

-- Before the record of a job is written that had a life before, with such `ties`: what others know of that is over; but
-- its children, if they have not heard of its end, wait for the end of this one.
local function begin_anew(id, ties)
  local key = job_key(id)
  if redis.call('EXISTS', children_key(id)) == 1 then tied[key] = 'c' end
  if not string.find(ties, '[ph]') then return end
  if redis.call('ZREM', P .. 'releasing', 'p ' .. id) == 1 then leave_all(id, redis.call('HGET', key, 'parents')) end
  redis.call('ZREM', P .. 'releasing', 'a ' .. id, 'u ' .. id)
  local left = redis.call('SMEMBERS', unmet_key(id))
  if left[1] then redis.call('SREM', unmet_key(id), unpack(left)) end
  redis.call('PEXPIRE', parents_key(id), 0)
end

-- For people who look: a parent's children, those that have ended too, as many as it has room for. Nothing hangs on it.
local function name_child(parent, id)
  local size = tonumber(redis.pcall('SCARD', dependents_key(parent)))
  if size and size < MOST_NAMED then redis.pcall('SADD', dependents_key(parent), id) end
end

-- Before the child is written down: should that fail, a parent finds that it has none. `arrival`: its number. Returns
-- whether it waits for one. `anew`: it had a life before.
local function attach(id, parents, arrival, again, anew)
  local waits, left = false, anew and redis.call('SMEMBERS', unmet_key(id)) or {}
  if left[1] then redis.call('SREM', unmet_key(id), unpack(left)) end
  for _, member in ipairs(parents) do
    local sign, parent = parent_in(member)
    local key, children = job_key(parent), children_key(parent)
    local status, ties, queue, pin = unpack(redis.call('HMGET', key, 'status', 'ties', 'origin', 'pin'))
    if status then
      local ended, score = is_terminal(status), '+inf'
      if waits_for(sign, status, again) then
        score = ended and sign == '~' and PARKED + arrival or arrival
        redis.call('SADD', unmet_key(id), member)
        waits = true
      end
      redis.call('ZADD', children, score, id)
      name_child(parent, id)
      ties = ties or ''
      if not string.find(ties, 'c', 1, true) then
        ties = ties .. 'c'
        redis.call('HSET', key, 'ties', ties)
      end
      tied[key] = ties
      if ended and not pin then
        local set = set_of(status, queue)
        local expiry = redis.call('ZSCORE', set, parent)
        if expiry then
          pin_while_read(parent, key, expiry)
          redis.call('ZADD', set, '+inf', parent)
        end
        redis.call('PERSIST', key)
      end
      if ended and score == arrival then do_later('c ' .. parent) end
    end
  end
  return waits
end
