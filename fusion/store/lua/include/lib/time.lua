-- The server's clock, read once a call: it alone decides leases and due times.
local clock = redis.call('TIME')
local now_s, now_us = clock[1] + 0, clock[2] + 0 -- a fraction of what tonumber costs
local now_ms = now_s * 1000 + (now_us - now_us % 1000) / 1000 -- math.floor would cost more than all else here

local minute, prefix -- of the last call of `iso`: most times of a call fall into one minute
-- The caller's clock tells how times begin in its minute, see fusion/store/scripting/minutes.py.
if MINUTE then minute, prefix = MINUTE + 0, MINUTE_TEXT end

-- ISO-8601 of an instant (days to civil date: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms).
local function iso(seconds, micros)
  local second = seconds % 60
  if (seconds - second) / 60 ~= minute then
    minute = (seconds - second) / 60
    local of_day = minute % 1440
    local z = (minute - of_day) / 1440 + 719468
    local doe = z % 146097
    local era = (z - doe) / 146097
    local yoe = doe - (doe - doe % 1460) / 1460 + (doe - doe % 36524) / 36524 - (doe - doe % 146096) / 146096
    yoe = (yoe - yoe % 365) / 365
    local doy = doe - (365 * yoe + (yoe - yoe % 4) / 4 - (yoe - yoe % 100) / 100)
    local mp = 5 * doy + 2
    mp = (mp - mp % 153) / 153
    local month = mp < 10 and mp + 3 or mp - 9
    local before = 153 * mp + 2
    prefix = string.format('%04d-%02d-%02dT%02d:%02d:', yoe + era * 400 + (month <= 2 and 1 or 0), month,
      doy - (before - before % 5) / 5 + 1, of_day / 60, of_day % 60)
  end
  return string.format('%s%02d.%06dZ', prefix, second, micros)
end

local now_iso = iso(now_s, now_us)

-- ISO time of `back` microseconds before now.
local function iso_before(back)
  local micros = (now_us - back) % 1000000
  return iso(now_s + (now_us - back - micros) / 1000000, micros)
end
