-- Jobs that came in several calls, of which the last has not come: if whoever sends them has died they never begin.
-- INCLUDE: time kin_keys releasing
-- RARER: is_coming give_up may_go

-- Whether that holds for those of such a token (nil: none). They are deleted if they have been given up.
local function is_coming(graph)
  return graph and (redis.call('ZSCORE', GRAPHS, graph) or redis.call('ZSCORE', P .. 'releasing', 'x ' .. graph))
end

-- They are deleted, some at a time, by whoever releases others; what of them comes now is refused.
local function give_up(graph)
  do_later('x ' .. graph)
  redis.call('ZREM', GRAPHS, graph)
end

-- As `is_coming`, of a job whose place another wants: if nothing was heard of whoever sends them for a while they are
-- given up; if that one lives it hears so.
local SILENT_MS = 2000
local function may_go(graph)
  local coming = is_coming(graph)
  local last = coming and redis.call('ZSCORE', GRAPHS, graph)
  if last and tonumber(last) < now_ms - SILENT_MS then give_up(graph) end
  return coming
end
