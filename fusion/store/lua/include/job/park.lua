-- Jobs that wait for something other than a time or their turn: status `blocked`. Each stands in `rq:blocked:<queue>`,
-- scored by the ms at which its wait is over, and waits by its own score in one set, which its hash names
-- (`waits_in`): `held:<queue>:<task>` until a worker that has the task takes it from there, `probation:<queue>` until
-- a worker can give it a place alone. `rq:waits` lists these sets; whoever has another `version` of the list than it
-- reads it again. One over the limit of its key (`limit:<key>`) is admitted by those who settle that, no worker asks.
-- INCLUDE: keys time ring score ties limit
-- RARER: has_room park unpark ring_set news_of_waits
-- Exports: parked
-- Uses: tied
local WAITS, MOST_WAITS = P .. 'waits', 1000
local function waits_key(set) return P .. 'waits:' .. set end
local function queue_of_set(set) return string.match(set, '^%a+:([^:]+)') end

-- Names come from what producers wrote: a limited number is listed.
local function has_room(set)
  return redis.call('HEXISTS', WAITS, set) == 1 or redis.call('HLEN', WAITS) <= MOST_WAITS
end

local parked = false -- in this call

-- Wakes a worker that can serve the set.
local function ring_set(set, class)
  local queue = queue_of_set(set)
  local paused, closed = paused_key(queue), closed_key(queue)
  push(wake_key(set), paused, closed)
  local best = class or class_of(redis.pcall('ZREVRANGE', waits_key(set), 0, 0, 'WITHSCORES')[2])
  if best >= 2 then push(wake_high_key(set), paused, closed) end
end

-- The caller takes it out of where it stood. `until_ms`: '+inf' for no end; `why`: for people, of the set. Further
-- arguments: fields.
local function park(id, key, queue, set, score, until_ms, why, ...)
  redis.call('ZADD', waits_key(set), score, id)
  redis.call('ZADD', P .. 'blocked:' .. queue, until_ms, id)
  redis.call('HSET', key, 'status', 'blocked', 'waits_in', set, ...)
  redis.call('PERSIST', key)
  -- one that is to run alone keeps what it holds: nobody but a lone worker takes it, and two of a key that gave way to
  -- each other would do so for ever
  local keeps = string.sub(set, 1, 10) == 'probation:'
      or tied[key] and keep_for_worker(id, key, place_in_key(key, queue, score))
  if not keeps then on_leave(id, key, queue) end
  parked = true
  if redis.call('HSETNX', WAITS, set, string.format('%d %s', now_ms, string.sub(why, 1, 500))) == 1 then
    redis.call('HSET', WAITS, 'version', string.format('%d%06d', now_s, now_us))
    -- nobody waits at the bell of a set that is new
    redis.pcall('PUBLISH', P .. 'pubsub:' .. '_fleet', '{"command": "look"}')
  end
  ring_set(set, class_of(score))
end

-- Its wait is over, whatever comes then: out of `rq:blocked` and its set.
local function unpark(id, key, queue)
  local set = redis.call('HGET', key, 'waits_in')
  redis.call('ZREM', P .. 'blocked:' .. queue, id)
  if set then
    local limit = string.match(set, '^limit:(.*)')
    redis.call('ZREM', limit and queue_up_key(limit) or waits_key(set), id)
    redis.call('HDEL', key, 'waits_in')
  end
end

-- What a worker gets of the list: nothing if it knows this version, else that and the sets.
local function news_of_waits(known)
  local version = redis.call('HGET', WAITS, 'version') or ''
  if version == known then return {} end
  local news = { version }
  for _, name in ipairs(version ~= '' and redis.call('HKEYS', WAITS) or {}) do
    if queue_of_set(name) then news[#news + 1] = name end
  end
  return news
end
