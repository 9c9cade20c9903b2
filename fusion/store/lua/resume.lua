-- resume: let workers take jobs again, and wake those that wait.
-- KEYS: suspended queues
-- INCLUDE: writer keys ring
-- Returns: 1 if they were suspended, else 0
local was = redis.call('DEL', K_suspended)
for _, key in ipairs(redis.call('SMEMBERS', K_queues)) do
  local queue = queue_name(key)
  if redis.call('EXISTS', ready_key(queue), key) > 0 then ring(queue) end
end
return was
