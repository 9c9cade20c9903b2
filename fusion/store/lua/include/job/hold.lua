-- Until when the dead may not be recovered. After an outage (Redis away, the clock moved, nobody looked) live workers
-- look dead until they have had one lease to renew; `rq:reap` remembers the last look by the server's clock.
-- INCLUDE: keys time
local function hold_until(lease_ms)
  local seen = redis.call('HMGET', REAP, 'last', 'hold')
  local last, hold = tonumber(seen[1]), tonumber(seen[2]) or 0
  if not last or now_ms < last or now_ms - last > lease_ms / 2 then return now_ms + lease_ms end
  return math.min(hold, now_ms + lease_ms)
end
