-- Versions are whole numbers joined by dots: 1.10 is higher than 1.9.
-- INCLUDE: cron_keys time
local function is_higher(a, b)
  local left, right = string.gmatch(a, '%d+'), string.gmatch(b, '%d+')
  while true do
    local x, y = left(), right()
    if not x and not y then return false end
    x, y = tonumber(x) or 0, tonumber(y) or 0
    if x ~= y then return x > y end
  end
end

-- Whether a scheduler that lives speaks for a higher version of this app: then this one is on its way out and says
-- nothing.
local function is_outdated(app, version)
  for _, name in ipairs(redis.call('ZREVRANGE', SCHEDULERS, 0, 99)) do -- those heard of last
    local theirs, other, beat, lease = unpack(redis.pcall('HMGET', scheduler_key(name), 'app', 'version', 'beat_ms',
        'lease_ms'))
    local lives = now_ms - (tonumber(beat) or 0) <= (tonumber(lease) or 0)
    if theirs == app and other and is_higher(other, version) and lives then return true end
  end
  return false
end
