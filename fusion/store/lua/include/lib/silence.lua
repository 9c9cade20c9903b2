-- Milliseconds since a process gave its last sign of life; nil if it never did. One that is in the future was given
-- before the clock was set
-- back: the silence counts from now on, or a dead process would live until the clock is there again.
-- INCLUDE: time
local function silence(key, beat)
  beat = tonumber(beat)
  if beat and beat > now_ms then
    redis.pcall('HSET', key, 'beat_ms', now_ms)
    beat = now_ms
  end
  return beat and now_ms - beat
end
