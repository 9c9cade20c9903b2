-- The server's clock, read once a call: it alone decides leases and due times.
local clock = redis.call('TIME')
local now_s, now_us = tonumber(clock[1]), tonumber(clock[2])
local now_ms = now_s * 1000 + math.floor(now_us / 1000)

local minute, prefix -- of the last call of `iso`: most times of a call fall into one minute

-- ISO-8601 of an instant (days to civil date: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms).
local function iso(seconds, micros)
  if math.floor(seconds / 60) ~= minute then
    minute = math.floor(seconds / 60)
    local days = math.floor(minute / 1440)
    local z = days + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local month = mp < 10 and mp + 3 or mp - 9
    local year = yoe + era * 400 + (month <= 2 and 1 or 0)
    local of_day = minute - days * 1440
    prefix = string.format('%04d-%02d-%02dT%02d:%02d:', year, month, doy - math.floor((153 * mp + 2) / 5) + 1,
      of_day / 60, of_day % 60)
  end
  return string.format('%s%02d.%06dZ', prefix, seconds - minute * 60, micros)
end

local now_iso = iso(now_s, now_us)

-- ISO time of `back` microseconds before now.
local function iso_before(back)
  local micros = now_us - back
  local carry = math.floor(micros / 1000000)
  return iso(now_s + carry, micros - carry * 1000000)
end
