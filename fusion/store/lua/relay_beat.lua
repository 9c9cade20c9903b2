-- relay_beat: a relay enters the list of relays, or says that it lives and which sinks it serves.
-- KEYS: relay relays meta
-- ARGV: name incarnation lease_ms ttl cap abandoned_s n_pairs
-- INCLUDE: time event_keys member enter silence
-- FLAGS: allow-oom
-- Rest: pairs (pid, hostname, ...), then names of sinks
-- Returns: ok | taken (a live other has the name)
-- While it is said within `abandoned_s` seconds, every producer and worker keeps `cap` events. Those that have been
-- silent for a minute longer than their lease leave the list, a few at a time.
local known, beat, lease = unpack(redis.call('HMGET', K_relay, 'incarnation', 'beat_ms', 'lease_ms'))
if known and known ~= A_incarnation then
  local silent = silence(K_relay, beat)
  if silent and silent <= (tonumber(lease) or tonumber(A_lease_ms)) then return 'taken' end
  redis.call('DEL', K_relay)
end
redis.call('ZADD', K_relays, now_ms, A_name)
redis.call('HSETNX', K_relay, 'birth', now_iso)
redis.call('HSET', K_relay, 'incarnation', A_incarnation, 'schema', SCHEMA, 'lease_ms', A_lease_ms,
  'last_heartbeat', now_iso, 'beat_ms', now_ms,
  unpack(ARGV, REST, REST + A_n_pairs - 1))
redis.call('EXPIRE', K_relay, A_ttl)
if tonumber(A_cap) > 0 then redis.pcall('HSET', K_meta, 'cap', A_cap, 'cap_until', now_s + A_abandoned_s) end
for i = REST + A_n_pairs, #ARGV do redis.pcall('HSET', sink_key(ARGV[i]), 'served_ms', now_ms) end
-- the clock was set back since
for _, name in ipairs(redis.call('ZRANGEBYSCORE', K_relays, '(' .. now_ms, '+inf', 'LIMIT', 0, 20)) do
  silence(relay_key(name), redis.pcall('HGET', relay_key(name), 'beat_ms'))
  redis.call('ZADD', K_relays, now_ms, name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', K_relays, '-inf', now_ms - A_lease_ms - 60000, 'LIMIT', 0, 20)) do
  local last, granted = unpack(redis.pcall('HMGET', relay_key(name), 'beat_ms', 'lease_ms'))
  local silent = silence(relay_key(name), last)
  if not silent or silent > (tonumber(granted) or 0) + 60000 then
    redis.call('DEL', relay_key(name))
    redis.call('ZREM', K_relays, name)
  end
end
return 'ok'
