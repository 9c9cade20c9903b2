-- A doorbell holds one token at most; the token wakes one idle worker and never carries the job. Nothing wakes the suspended.
local function ring(queue)
  local bell = wake_key(queue)
  if redis.call('EXISTS', bell, SUSPENDED) == 0 then redis.call('RPUSH', bell, '1') end
end
