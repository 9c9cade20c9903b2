-- Which processes live.
-- INCLUDE: time keys

-- Milliseconds since a process gave its last sign of life; nil if it never did. One that is in the future was given
-- before the clock was set back: the silence counts from now on, or a dead process would live until the clock is there
-- again.
local function silence(key, beat)
  beat = tonumber(beat)
  if beat and beat > now_ms then
    redis.pcall('HSET', key, 'beat_ms', now_ms)
    beat = now_ms
  end
  return beat and now_ms - beat
end

-- Until when the dead may not be recovered. After an outage (Redis away, the clock moved, nobody looked) live workers
-- look dead until they have had one lease to renew; `rq:reap` remembers the last look by the server's clock.
local function hold_until(lease_ms)
  local seen = redis.call('HMGET', REAP, 'last', 'hold')
  local last, hold = tonumber(seen[1]), tonumber(seen[2]) or 0
  if not last or now_ms < last or now_ms - last > lease_ms / 2 then return now_ms + lease_ms end
  return math.min(hold, now_ms + lease_ms)
end
