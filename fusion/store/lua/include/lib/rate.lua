-- Rates, by the generic cell rate algorithm. What is kept of a rate is one instant, `tat`: so far ahead have its starts
-- used up time. Instants are microseconds of the server's clock; `interval`: microseconds from one start to the next,
-- `burst`: how many may start at once after a rest. In any stretch of time no more start than fit into it, and a burst.
-- A `tat` that is further ahead than a burst reaches is of another rate, or of a clock that was set back since: it
-- counts as one burst.
-- RARER: rate_of used_ahead rate_room rate_spend

-- Interval and burst of `<count>/<period in ms>/<burst>`; nil for anything else.
local function rate_of(text)
  local count, period, burst = string.match(text or '', '^([1-9]%d*)/([1-9]%d*)/([1-9]%d*)$')
  if count then return period * 1000 / count, tonumber(burst) end
end

local function used_ahead(tat, at, interval, burst)
  return math.min(math.max((tonumber(tat) or 0) - at, 0), burst * interval)
end

-- How many may start at `at`, and the instant from which on one may.
local function rate_room(tat, at, interval, burst)
  local ahead = used_ahead(tat, at, interval, burst)
  return math.floor(burst - ahead / interval), at + math.max(0, ahead - (burst - 1) * interval)
end

-- The `tat` after this many have started at `at`.
local function rate_spend(tat, at, interval, burst, count)
  return at + used_ahead(tat, at, interval, burst) + count * interval
end
