-- ring: put back a token of a queue's bell, or a wildcard's, that woke a worker with no free slot.
-- ARGV: queue
-- FLAGS: allow-oom
-- INCLUDE: keys score ring
-- Returns: 1
if is_wildcard(A_queue) then
  local best = redis.pcall('ZREVRANGE', work_key(A_queue), 0, 0, 'WITHSCORES')[2]
  if best then push(wake_key(A_queue), SUSPENDED) end
  if best and tonumber(best) >= 2 then push(wake_high_key(A_queue), SUSPENDED) end
else
  ring(A_queue)
end
return 1
