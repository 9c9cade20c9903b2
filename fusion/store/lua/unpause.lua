-- unpause: let workers take jobs of a queue again, and wake one that waits.
-- ARGV: queue
-- INCLUDE: writer keys ring park
-- Returns: 1 if it was paused, else 0
local was = redis.call('DEL', paused_key(A_queue))
if redis.call('EXISTS', ready_key(A_queue), queue_key(A_queue)) > 0 then ring(A_queue) end
for _, set in ipairs(redis.call('HKEYS', WAITS)) do
  if queue_of_set(set) == A_queue then ring_set(set) end
end
return was
