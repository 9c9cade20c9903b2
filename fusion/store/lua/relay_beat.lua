-- relay_beat: a relay enters the list of relays, or says that it lives and which sinks it serves.
-- KEYS: relay relays meta
-- ARGV: name incarnation lease_ms ttl cap abandoned_s n_pairs
-- INCLUDE: time member enter keys
-- FLAGS: allow-oom
-- Rest: pairs (pid, hostname, ...), then names of sinks
-- Returns: ok | taken (a live other has the name)
-- While it is said within `abandoned_s` seconds, every producer and worker keeps `cap` events.
if not enter_list(K_relay, K_relays, A_ttl) then return 'taken' end
if tonumber(A_cap) > 0 then redis.pcall('HSET', K_meta, 'cap', A_cap, 'cap_until', now_s + A_abandoned_s) end
for i = REST + A_n_pairs, #ARGV do redis.pcall('HSET', sink_key(ARGV[i]), 'served_ms', now_ms) end
drop_silent(K_relays, relay_key(''))
return 'ok'
