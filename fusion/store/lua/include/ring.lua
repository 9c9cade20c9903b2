-- A doorbell holds one token at most; the token wakes one idle worker and never carries the job. Nothing rings for a paused queue, nor while all are suspended.
-- Workers whose free slots are all reserved for HIGH wait at a bell of their own: they would only waste the tokens of the others.
-- `class`: the best that waits, where the caller knows it.
local function ring(queue, class)
  local bell, high, paused = wake_key(queue), wake_high_key(queue), paused_key(queue)
  if redis.call('EXISTS', bell, SUSPENDED, paused) == 0 then redis.call('RPUSH', bell, '1') end
  if class and class < 2 or redis.call('EXISTS', high, SUSPENDED, paused) > 0 then return end
  local waiting = redis.pcall('ZCOUNT', ready_key(queue), '2', '+inf')
  if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
