-- unpause: let workers take jobs of a queue again, and wake one that waits.
-- ARGV: queue
-- INCLUDE: writer keys score ring
-- Returns: 1 if it was paused, else 0
local was = redis.call('DEL', paused_key(A_queue))
if redis.call('EXISTS', ready_key(A_queue), queue_key(A_queue)) > 0 then ring(A_queue) end
return was
