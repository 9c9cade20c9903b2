-- What is still to be done for jobs that are bound to others: `rq:releasing` names it, scored by the ms from which on
-- somebody is to do it. So the script in which a job ends costs one command for them, however many they are; `release`
-- does the rest, some at a time, and `turn` says that there is something. All of it looks at what is, so nothing is
-- done twice. `u <id>`: a deferred job is to wait no longer; `c <id>`: its children are to hear that it ended;
-- `b <id>`: that they wait for it no longer, as it has finished a run and is to run again, or as the call that cancels
-- it frees them; that comes before its end; `p <id>`: it has ended, and leaves its parents; `a <id>`: it was put back,
-- and waits for those of its many parents that have not ended;
-- `g <token>`: the last job of a graph has come; `x <token>`: it never will.
-- INCLUDE: time keys
-- RARER: do_later release_later is_coming give_up may_go
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end

-- A job that is `deferred` enters its queue, soon: from wherever one may not do so at once.
local function release_later(id) do_later('u ' .. id) end

-- Jobs that came in several calls, of which the last has not come: if whoever sends them has died they never begin.
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
-- given up; if that one lives it learns that.
local SILENT_MS = 2000
local function may_go(graph)
  local coming = is_coming(graph)
  local last = coming and redis.call('ZSCORE', GRAPHS, graph)
  if last and tonumber(last) < now_ms - SILENT_MS then give_up(graph) end
  return coming
end
