-- ring: put back a token of a queue's bell, a wildcard's, or that of a set of blocked jobs, that woke a worker with no
--   free slot. With a worker's name instead: have others wait for the closed queues that it waits for.
-- ARGV: queue waiter
-- FLAGS: allow-oom
-- INCLUDE: keys ring park queue_gate
-- Returns: 1
if A_waiter ~= '' then
  hand_on({ [A_waiter] = true })
elseif is_wildcard(A_queue) then
  local best = redis.pcall('ZREVRANGE', work_key(A_queue), 0, 0, 'WITHSCORES')[2]
  if best then push(wake_key(A_queue)) end
  if best and tonumber(best) >= 2 then push(wake_high_key(A_queue)) end
elseif queue_of_set(A_queue) then
  ring_set(A_queue)
else
  ring(A_queue)
end
return 1
