-- scheduler_beat: a scheduler enters the list of schedulers, or says that it lives.
-- KEYS: scheduler schedulers
-- ARGV: name incarnation lease_ms ttl n_pairs
-- INCLUDE: cron_keys time member enter silence
-- FLAGS: allow-oom
-- Rest: pairs (pid, hostname, app, version, ...)
-- Returns: ok | taken (a live other has the name)
-- Those that have been silent for a minute longer than their lease leave the list, a few at a time.
local known, beat, lease = unpack(redis.call('HMGET', K_scheduler, 'incarnation', 'beat_ms', 'lease_ms'))
if known and known ~= A_incarnation then
  local silent = silence(K_scheduler, beat)
  if silent and silent <= (tonumber(lease) or tonumber(A_lease_ms)) then return 'taken' end
  redis.call('DEL', K_scheduler)
end
redis.call('ZADD', K_schedulers, now_ms, A_name)
redis.call('HSETNX', K_scheduler, 'birth', now_iso)
redis.call('HSET', K_scheduler, 'incarnation', A_incarnation, 'schema', SCHEMA, 'lease_ms', A_lease_ms,
  'last_heartbeat', now_iso, 'beat_ms', now_ms,
  unpack(ARGV, REST, REST + A_n_pairs - 1))
redis.call('EXPIRE', K_scheduler, A_ttl)
-- the clock was set back since
for _, name in ipairs(redis.call('ZRANGEBYSCORE', K_schedulers, '(' .. now_ms, '+inf', 'LIMIT', 0, 20)) do
  silence(scheduler_key(name), redis.pcall('HGET', scheduler_key(name), 'beat_ms'))
  redis.call('ZADD', K_schedulers, now_ms, name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', K_schedulers, '-inf', now_ms - A_lease_ms - 60000, 'LIMIT', 0, 20)) do
  local last, granted = unpack(redis.pcall('HMGET', scheduler_key(name), 'beat_ms', 'lease_ms'))
  local silent = silence(scheduler_key(name), last)
  if not silent or silent > (tonumber(granted) or 0) + 60000 then
    redis.call('DEL', scheduler_key(name))
    redis.call('ZREM', K_schedulers, name)
  end
end
return 'ok'
