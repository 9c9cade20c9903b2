-- events_ack: a sink has these events, or refused them for good.
-- KEYS: events sink parked
-- ARGV: sink epoch n at_ms parked_max n_ids
-- INCLUDE: member
-- FLAGS: allow-oom
-- Rest: ids of the delivered entries; then of each refused one: id, why, document
-- Returns: {delivered, parked}: those that nobody had acknowledged before
-- epoch, n, at_ms: of the newest of them. Parked ones over the cap make room and count as dropped.
local n_ids = tonumber(A_n_ids)
local delivered, parked = 0, 0
for first = 1, n_ids, 1000 do
  delivered = delivered + redis.call('XACK', K_events, A_sink, unpack(ARGV, REST + first - 1,
      REST + math.min(first + 999, n_ids) - 1))
end
for at = REST + n_ids, #ARGV, 3 do
  if redis.call('XACK', K_events, A_sink, ARGV[at]) == 1 then
    redis.call('XADD', K_parked, '*', 'why', ARGV[at + 1], 'document', ARGV[at + 2])
    parked = parked + 1
  end
end
if parked > 0 then
  local over = redis.call('XTRIM', K_parked, 'MAXLEN', A_parked_max)
  if over > 0 then redis.call('HINCRBY', K_sink, 'dropped', over) end
end
if delivered > 0 then redis.call('HINCRBY', K_sink, 'delivered', delivered) end
if delivered + parked > 0 then
  redis.call('HSET', K_sink, 'epoch', A_epoch, 'n', A_n, 'at_ms', A_at_ms)
  redis.call('HDEL', K_sink, 'failing_since', 'failures', 'breaker')
end
return { delivered, parked }
