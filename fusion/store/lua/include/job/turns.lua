-- Fair turns. In a class of a queue that has had jobs with fair keys, a job's number is not that of its arrival but of
-- its turn: the one after the last that its key has taken, and at least the `clock`, the turn of the best job that
-- waits. So each key has one job per turn, and one with nothing waiting begins at the turn that is next. Jobs without a
-- fair key are one key together. A turn is never above the arrival number in whose place it stands.
-- `rq:fair:<queue>` has the clock of each class (`<class>`) and the last turns of its keys (`<class>:<key>`), as scores
-- of that class. A key whose last turn is behind the clock begins at the clock, known or not: it is forgotten.
-- A turn that as many keys as CROWD have taken last takes no others: they begin at the one after it. Or else new keys
-- that come as fast as jobs are claimed would make it last for ever, for those of its jobs too whose ids are behind.
-- INCLUDE: keys score
-- RARER: has_turns open_turns forget_turns turn_of
-- Exports: fair
-- Uses: fifos
local UNITS, FORGOTTEN, FORGET_AT, CROWD = 2 ^ 44, 100, 50, 1000
-- What this call knows. By queue: whether it has turns. By queue and class: the clock, the turn at which keys
-- begin, the last turns, how many were given.
local fair = {}

local function turns_key(queue) return P .. 'fair:' .. queue end

local function has_turns(queue)
  if fair[queue] == nil then fair[queue] = redis.pcall('EXISTS', turns_key(queue)) == 1 end
  return fair[queue]
end

-- A class of a queue; nil if none of its jobs ever had a fair key and this one has none. The clock never goes back:
-- what has a turn before it is here again, as a retry is, and was counted. With nobody waiting it is the newest number.
local function open_turns(queue, class, seq, named)
  local at = queue .. ' ' .. class
  if fair[at] then return fair[at] end
  local key, name = turns_key(queue), string.format('%d', class)
  local known = redis.call('ZSCORE', key, name)
  if not known and not named then return nil end
  if fifos[queue] == false then fifos[queue] = nil end -- nobody has looked at its own key
  local ready, turns = ready_key(queue), { last = {}, count = 0 }
  local first = tonumber(known) or class + 0.5
  local best = redis.call('ZRANGE', ready, first, '(' .. name, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  turns.clock = tonumber(best) or score_of(queue, class, seq)
  if not known and best then -- those who wait keep their places, and who comes after them without a key stays behind
    local last = redis.call('ZRANGE', ready, '(' .. name, first, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    redis.call('ZADD', key, last, name .. ':')
  end
  if turns.clock ~= tonumber(known) then redis.call('ZADD', key, turns.clock, name) end
  local exact = string.format('%.17g', turns.clock)
  turns.begin = redis.call('ZCOUNT', key, exact, exact) > CROWD and turns.clock - 1 / UNITS or turns.clock
  fair[at], fair[queue] = turns, true
  return turns
end

-- As many at a time as may have come since the last time, and more.
local function forget_turns(key, class, clock)
  local from, upto = string.format('(%.17g', clock), string.format('(%d', class + 1)
  local old = redis.call('ZRANGE', key, from, upto, 'BYSCORE', 'LIMIT', 0, FORGOTTEN)
  if old[1] then redis.call('ZREM', key, unpack(old)) end
end

-- The number that a job takes its place by: `seq`, a new one of arrival, or that of its turn. `name`: its fair key, or
-- ''. The turn is taken before the job has its place: if that fails, a turn is passed over.
local function turn_of(queue, priority, seq, name)
  if is_list(queue) or name == '' and not has_turns(queue) then return seq end
  local class, key = class_of(priority), turns_key(queue)
  local turns = open_turns(queue, class, seq, name ~= '')
  if not turns then return seq end
  local member = string.format('%d:', class) .. name
  local last = turns.last[member] or tonumber(redis.call('ZSCORE', key, member))
  local score = math.min(turns.begin, last and last - 1 / UNITS or turns.begin)
  redis.call('ZADD', key, score, member)
  turns.last[member] = score
  if turns.count % FORGET_AT == 0 then forget_turns(key, class, turns.clock) end
  turns.count = turns.count + 1
  return (class + 0.5 - score) * UNITS
end
