-- Wake a scheduler that sleeps until the next due instant: something is due before that now.
-- INCLUDE: keys time
-- RARE: ring_scheduler score_at schedule
-- Exports: soonest
-- `ms`: when. If that is before the next look for what is due, which comes each second, all processes learn it: the one
-- that took the token may be frozen. In whatever database: a look too many is harmless.
local function ring_scheduler(ms)
  local bell, left = wake_key('_scheduler'), ms and math.max(ms - now_ms, 0)
  if redis.call('EXISTS', bell) == 0 then redis.call('RPUSH', bell, '1') end
  if left and left < 1000 then redis.pcall('PUBLISH', P .. 'pubsub:_due', string.format('due %d', left)) end
end

-- Jobs due at one instant are to arrive in the order in which they were enqueued, and the schedule orders equal scores
-- by id. `promote` sorts them by number, as many as it can read at once: when about as many share a score, later ones
-- get the next one within the millisecond.
local SAME_SCORE = 100
local instants = {} -- by instant: the score to give, and how many it was given in this call
local soonest -- ms: the first instant for which something was scheduled in this call

-- The instant a score stands for.
local function ms_of(score) return math.floor(tonumber(score) * 1000 + 0.001) end

local function score_at(ms)
  local at = instants[ms]
  if not at then
    local first, range = ms / 1000, string.format('(%.17g', (ms + 1) / 1000)
    local last = redis.call('ZRANGE', SCHEDULED, range, first, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    local full = last and redis.call('ZRANGE', SCHEDULED, last, last, 'BYSCORE', 'LIMIT', SAME_SCORE - 1, 1)[1]
    at = { score = tonumber(last) or first, count = full and SAME_SCORE or 0 }
    instants[ms] = at
  end
  if at.count >= SAME_SCORE then
    at.score, at.count = at.score + math.max(2 ^ -22, at.score * 2 ^ -52), 0
    if ms_of(at.score) > ms then return score_at(ms + 1) end -- a millisecond has room for 200,000
  end
  at.count = at.count + 1
  return at.score
end

-- Into the schedule, due at `ms` (since 1970).
local function schedule(id, ms)
  local known = instants[ms]
  redis.call('ZADD', SCHEDULED, score_at(ms), id)
  if known then return end
  soonest = math.min(soonest or ms, ms)
  -- nothing else before it, but for what is overdue: others' entries may be, for ever
  local soon = string.format('(%.17g', (now_ms + 1) / 1000)
  local before = redis.call('ZCOUNT', SCHEDULED, soon, string.format('(%.17g', ms / 1000))
  if before == 0 then ring_scheduler(ms) end
end

-- When the next job, or something of a concurrency key, is due (ms since 1970), nil for none. rq-scheduler keeps its
-- entries in the same ZSET, and moves them when it likes: those that are overdue count for nothing.
-- `limits`: false if nothing of any concurrency key is due at any time.
local function next_due(limits)
  local limit = limits and tonumber(redis.pcall('ZRANGE', LIMITS_DUE, 0, 0, 'WITHSCORES')[2])
  if limit and limit <= now_ms then return now_ms end
  local first = redis.pcall('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  if first[2] and ms_of(first[2]) <= now_ms then
    local from = string.format('%.17g', (now_ms + 1) / 1000)
    local ours = false
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, '-inf', '(' .. from, 'LIMIT', 0, 20)) do
      ours = ours or redis.pcall('HEXISTS', job_key(id), 'seq') == 1
    end
    if ours then return now_ms end
    first = redis.call('ZRANGEBYSCORE', SCHEDULED, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  local job = first[2] and ms_of(first[2])
  return limit and math.min(limit, job or limit) or job
end
