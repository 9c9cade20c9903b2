-- History of queues and tasks by minute and hour: names and lifetimes of its keys. Few names have some of their own.
-- INCLUDE: time
-- Of each tier: its name, steps of a key, seconds that it is kept.
local SERIES_TIERS = { { 'minute', 60, 25 * 3600 }, { 'hour', 24, 31 * 86400 } }
local OTHER = '(other)'

-- The key and the place in it of a step.
local function series_key(tier, scope, name, step)
  local place = step % tier[2]
  local number = string.format('%d', (step - place) / tier[2])
  return P .. 'history:' .. tier[1] .. ':' .. scope .. ':' .. name .. ':' .. number, string.format('%d', place)
end

-- The name, if it has a place among `most` or gets one, else `(other)`; one that nobody used for a month makes room.
local function series_name(known_names, name, most)
  if name == OTHER then return name end
  local known = redis.call('ZSCORE', known_names, name)
  if not known and redis.call('ZCARD', known_names) >= tonumber(most) then
    redis.call('ZREMRANGEBYSCORE', known_names, '-inf', now_ms - 30 * 86400000)
    if redis.call('ZCARD', known_names) >= tonumber(most) then return OTHER end
  end
  if not known or now_ms - known > 3600000 then redis.call('ZADD', known_names, now_ms, name) end
  return name
end
