-- relay_leave: a relay that ends leaves the list; others take what it holds.
-- KEYS: relay relays
-- ARGV: name incarnation
-- FLAGS: allow-oom
-- Returns: ok | stale (another has the name by now)
if redis.call('HGET', K_relay, 'incarnation') ~= A_incarnation then return 'stale' end
redis.call('DEL', K_relay)
redis.call('ZREM', K_relays, A_name)
return 'ok'
