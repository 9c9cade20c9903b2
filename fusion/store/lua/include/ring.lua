-- A doorbell holds one token at most; the token wakes one idle worker and never carries the job. Nothing wakes the suspended.
-- Workers whose free slots are all reserved for HIGH wait at a bell of their own: they would only waste the tokens of the others.
local function ring(queue)
  if redis.call('EXISTS', SUSPENDED) == 1 then return end
  local bell, high = wake_key(queue), wake_high_key(queue)
  if redis.call('EXISTS', bell) == 0 then redis.call('RPUSH', bell, '1') end
  local waiting = redis.pcall('ZCOUNT', ready_key(queue), '2', '+inf')
  if type(waiting) == 'number' and waiting > 0 and redis.call('EXISTS', high) == 0 then redis.call('RPUSH', high, '1') end
end
