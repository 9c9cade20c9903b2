-- resume: let workers take jobs again, and wake those that wait, a bounded number of queues at a time.
-- KEYS: suspended queues
-- ARGV: cursor limit
-- INCLUDE: writer keys ring park
-- Returns: {1 if they were suspended, else 0; where to go on, '0' at the end}
local was = redis.call('DEL', K_suspended)
local cursor, keys = unpack(redis.call('SSCAN', K_queues, A_cursor, 'COUNT', A_limit))
for _, key in ipairs(keys) do
  local queue = queue_name(key)
  if redis.call('EXISTS', ready_key(queue), key) > 0 then ring(queue) end
end
for _, set in ipairs(cursor == '0' and redis.call('HKEYS', WAITS) or {}) do
  if queue_of_set(set) then ring_set(set) end
end
return { was, cursor }
