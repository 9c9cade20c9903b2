-- What is still to be done for jobs that are bound to others: `rq:releasing` names it, scored by the ms from which on
-- somebody is to do it. So the script in which a job ends costs one command for them, however many they are; `release`
-- does the rest, some at a time, and `turn` says that there is something. All of it looks at what is, so nothing is
-- done twice. `u <id>`: a deferred job is to wait no longer; `c <id>`: its children are to hear that it ended;
-- `p <id>`: it has ended, and leaves its parents; `a <id>`: it was put back, and waits for those of its many parents
-- that have not ended; `g <token>`: the last job of a graph has come; `x <token>`: it never will.
-- INCLUDE: time
-- RARER: do_later release_later
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end

-- A job that is `deferred` enters its queue, soon: from wherever one may not do so at once.
local function release_later(id) do_later('u ' .. id) end
