-- unpause: let workers take jobs of a queue again, and wake one that waits.
-- ARGV: queue
-- INCLUDE: writer keys ring park
-- Returns: what `pause` wrote, and ms until it would have ended (-1: never); nothing if it was not paused
local key, was = paused_key(A_queue), {}
if redis.call('EXISTS', key) == 1 then was = { redis.pcall('GET', key), redis.call('PTTL', key) } end
if was[1] and type(was[1]) ~= 'string' then was[1] = '' end -- of another type, and a pause all the same
redis.call('DEL', key)
if redis.call('EXISTS', ready_key(A_queue), queue_key(A_queue)) > 0 then ring(A_queue) end
for _, set in ipairs(redis.call('HKEYS', WAITS)) do
  if queue_of_set(set) == A_queue then ring_set(set) end
end
return was
