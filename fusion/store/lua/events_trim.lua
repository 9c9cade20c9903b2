-- events_trim: drop the oldest events that every sink has, down to what is kept anyway; bounded.
-- KEYS: events
-- ARGV: keep abandoned_s limit
-- FLAGS: allow-oom
-- INCLUDE: keys time groups
-- Returns: events dropped
-- A sink that no relay has served for `abandoned_s` seconds keeps nothing any more: what it misses counts as dropped,
-- should it come back.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_before(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  return a_ms < b_ms or a_ms == b_ms and a_seq < b_seq
end

local excess = redis.call('XLEN', K_events) - A_keep
if excess <= 0 then return 0 end
local low
for _, group in ipairs(groups_of(K_events)) do
  local served = tonumber(redis.pcall('HGET', sink_key(group.name), 'served_ms'))
  if served and served > now_ms then -- the clock was set back since
    redis.pcall('HSET', sink_key(group.name), 'served_ms', now_ms)
    served = now_ms
  end
  if not served or now_ms - served < A_abandoned_s * 1000 then
    local needed = group['last-delivered-id']
    if group.pending > 0 then needed = redis.call('XPENDING', K_events, group.name)[2] end
    if not low or is_before(needed, low) then low = needed end
  end
end
if not low then return 0 end
return redis.call('XTRIM', K_events, 'MINID', '~', low, 'LIMIT', math.min(excess, A_limit))
