-- Wake a scheduler that sleeps until the next due instant: something is due before that now.
local function ring_scheduler()
  local bell = wake_key('_scheduler')
  if redis.call('EXISTS', bell) == 0 then redis.call('RPUSH', bell, '1') end
end

-- Into the schedule, due at `at` (Unix seconds).
local function schedule(id, at)
  redis.call('ZADD', SCHEDULED, at, id)
  if redis.call('ZRANGE', SCHEDULED, 0, 0)[1] == id then ring_scheduler() end
end
