-- clean: forget jobs whose time in a terminal set is over or which are too many, names of queues that have long been
--   empty, and give old producers' entries a place; a bounded number of jobs and of names at a time.
-- KEYS: queues clean idle
-- ARGV: limit names interval_ms duties
-- FLAGS: allow-oom
-- INCLUDE: keys mark time score turns callbacks count limit audit kin audit_kin trash audit_unique audit_batches
-- INCLUDE: failures audit_failures tell lines
-- Returns: {removed, adopted, again}
-- However many call it: one pass over all names an interval, each call goes on where the last one stopped.
local FORGET_MS = 86400000 -- a name goes when all its sets have been empty for this time; what enqueues brings it back
local left, removed, adopted = tonumber(A_limit), 0, 0
local has_logs = redis.call('EXISTS', LOGS) == 1

-- Stock RQ keeps its ended jobs in the same sets, but for failed ones. What has no mark of ours stays: a record that
-- says so, or, where there is none any more, a score in whole seconds, which RQ writes and Fusion does not.
local function is_others(set, job, score)
  if job.err or job[2] or job[3] then return false end
  return job[1] or set ~= FAILED and tonumber(score) % 1 == 0
end

-- Whether the entry is the job's own. That of a former job of its id, whose record the net under it took, is not: the
-- job that lives stands in another set, or has ended so in another queue.
local function is_its_own(set, status, job)
  return job[1] == status and (not job[4] or set_of(status, job[4]) == set)
end

-- One whose parents have not been told that it ended, as nobody has worked since, leaves those that its record names
-- here; the others by `release`.
local function drop(id, status)
  if status == 'failed' then pcall(leave_failure, id, job_key(id)) end
  local unheard = redis.call('ZSCORE', P .. 'releasing', 'p ' .. id)
  if unheard then pcall(leave_parents, id, job_key(id)) else redis.call('UNLINK', parents_key(id)) end
  redis.call('UNLINK', job_key(id), dependents_key(id))
  if has_logs then pcall(drop_log, id) end
end

local function sweep_from(set, status, offset)
  local found, others = redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. now_s, 'WITHSCORES', 'LIMIT', offset, left), 0
  for i = 1, #found, 2 do
    local id = found[i]
    local job = redis.pcall('HMGET', job_key(id), 'status', 'seq', 'raw_id', 'origin')
    if is_others(set, job, found[i + 1]) then
      others = others + 1
    else
      redis.call('ZREM', set, id)
      if is_its_own(set, status, job) then
        drop(id, status)
      elseif not job[1] and not job.err then -- the net under it was first
        redis.call('UNLINK', dependents_key(id), parents_key(id))
      end
      removed, left = removed + 1, left - 1
    end
  end
  return others
end

local function sweep(set, status)
  local room = left
  -- nothing but others' entries: ours stand behind them, and chance finds where
  if room > 0 and sweep_from(set, status, 0) == room then
    sweep_from(set, status, now_us % redis.call('ZCOUNT', set, '-inf', '(' .. now_s))
  end
end

-- Over the cap of a set those go that were to go first, but none that ended less than a minute ago. Counted, so that
-- it can be reported.
local CAPS = { failed = FAILED_MAX, finished = FINISHED_MAX, canceled = CANCELED_MAX, stopped = CANCELED_MAX }
local young = iso_before(MIN_TTL * 1000000)

local function trim(set, status)
  local over, dropped = redis.call('ZCARD', set) - CAPS[status], 0
  if over <= 0 then return end
  local found = redis.call('ZRANGE', set, 0, left - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local id = found[i]
    local job = redis.pcall('HMGET', job_key(id), 'status', 'seq', 'raw_id', 'origin', 'ended_at', 'pin')
    local own = is_its_own(set, status, job)
    if over <= 0 or own and (job[5] or '') > young then break end
    if not is_others(set, job, found[i + 1]) and not (own and job[6]) then
      redis.call('ZREM', set, id)
      if own then
        drop(id, status)
        dropped = dropped + 1
      end
      removed, left, over = removed + 1, left - 1, over - 1
    end
  end
  if dropped > 0 then redis.call('HINCRBY', P .. 'dropped', status, dropped) end
end

-- A bare whole number as score is an old producer's priority; in our order it would come last of its class for ever.
local function adopt(queue)
  local ready = ready_key(queue)
  for class = 0, 2 do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', ready, class, class, 'LIMIT', 0, left)) do
      local seq, key = turn_of(queue, class, next_seq(), ''), job_key(id)
      redis.call('ZADD', ready, score_of(queue, class, seq), id)
      local job = redis.pcall('HMGET', key, 'data', 'seq', 'origin', 'priority')
      if job[1] and not is_rqs(key) then
        redis.call('HSET', key, 'seq', seq, 'priority', class)
        meet(job[2], job[3], job[4], job[3] or queue, class)
        mark_hooks(key)
        on_arrive(id, key, queue)
      elseif redis.call('EXISTS', key) == 0 then
        tally('enqueued', queue, class) -- what its claim takes for one of ours
      end
      adopted, left = adopted + 1, left - 1
    end
  end
end

-- Returns the time since which all of the queue's sets are empty; nil if one is not. A paused one is kept: somebody
-- counts on it; and one that is stock RQ's as well, as RQ goes by these names, too.
local function tidy(queue, since)
  local states, kept = { KEPT_STATES }, {}
  for i, status in ipairs(states) do kept[i] = set_of(status, queue) end
  local ended = redis.call('EXISTS', unpack(kept))
  if ended > 0 then
    for i, status in ipairs(states) do
      pcall(sweep, kept[i], status)
      pcall(trim, kept[i], status)
    end
  end
  local ready, wip = ready_key(queue), wip_key(queue)
  local waits, runs = redis.call('EXISTS', ready), redis.call('EXISTS', wip)
  if waits > 0 then pcall(adopt, queue) else redis.call('DEL', turns_key(queue)) end
  if runs > 0 then -- claimed by a version that kept no index of leases
    local first = redis.pcall('ZRANGEBYSCORE', wip, LEAST_LEASE, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if first then redis.pcall('ZADD', LEASES, 'NX', first, queue) end
  end
  local others = redis.call('EXISTS', queue_key(queue), fifo_key(queue), set_of('deferred', queue), set_of('blocked',
    queue), paused_key(queue))
  if others > 0 then pcall(audit_deferred, queue) end
  if ended + waits + runs + others > 0 or in_fifo(queue) and not is_list(queue) then return nil end
  since = tonumber(since) or now_ms
  return since > now_ms and now_ms or since
end

-- Counters outlive the queue's name by a month. Those of a queue that is in use again stay, and those of one with jobs
-- in the schedule, where no name is needed: more came in than went out.
local KEPT_MS = 30 * 86400000
local function forget_totals()
  for _, queue in ipairs(redis.call('ZRANGEBYSCORE', TOTALS, '-inf', now_ms - KEPT_MS, 'LIMIT', 0, 20)) do
    local totals, there = redis.call('HGETALL', TOTALS .. ':' .. queue), 0
    for i = 1, #totals, 2 do
      local what = string.match(totals[i], '^%a+')
      local sign = (what == 'enqueued' or what == 'requeued') and 1 or -1
      there = there + sign * (tonumber(totals[i + 1]) or 0)
    end
    if there <= 0 and redis.call('SISMEMBER', K_queues, queue_key(queue)) == 0 then
      redis.call('DEL', TOTALS .. ':' .. queue)
    end
    redis.call('ZREM', TOTALS, queue)
  end
end

-- Returns whether there is more to do at once: until all failed jobs of before have a group, or as much is wrong.
local function group_failures()
  local failed, groups, newest, grouped = unpack(redis.call('HMGET', K_clean, 'failed', 'groups', 'newest', 'grouped'))
  local much
  failed, groups, newest, much = audit_failures(failed or '0', groups, newest, grouped)
  redis.call('HSET', K_clean, 'failed', failed, 'groups', groups, 'newest', newest)
  if failed == '0' and not grouped then grouped = redis.call('HSET', K_clean, 'grouped', 1) end
  return much or not grouped
end

local ok, trashed = pcall(drop_expired_trash, 100)
local again = ok and trashed == 100 and 1 or 0
local cursor, skip, began, limits, uniques, batches, grouped = unpack(redis.call('HMGET', K_clean, 'cursor', 'skip',
    'began', 'limits', 'uniques', 'batches', 'grouped'))

-- Looks at the next names of queues, and notes where the next call goes on.
local function tidy_names()
  local names = tonumber(A_names)
  local following, keys = unpack(redis.call('SSCAN', K_queues, cursor, 'COUNT', names))
  skip = math.min(tonumber(skip), #keys)
  local upto = math.min(#keys, skip + names) -- a small set comes as a whole, however many were asked for
  local since = upto > skip and redis.call('HMGET', K_idle, unpack(keys, skip + 1, upto)) or {}
  local idle = {}
  for i = skip + 1, upto do
    if left <= 0 then
      upto = i - 1
      break
    end
    local key = keys[i]
    local known = since[i - skip]
    local empty = tidy(queue_name(key), known)
    if empty and now_ms - empty >= FORGET_MS then
      redis.call('SREM', K_queues, key)
      redis.pcall('ZADD', TOTALS, now_ms, queue_name(key))
      redis.call('HDEL', K_idle, key)
    elseif empty and tonumber(known) ~= empty then
      idle[#idle + 1], idle[#idle + 2] = key, empty
    elseif known and not empty then
      redis.call('HDEL', K_idle, key)
    end
  end
  if idle[1] then redis.call('HSET', K_idle, unpack(idle)) end
  if upto == #keys then cursor, skip = following, 0 else skip = upto end
end

if not cursor or cursor == '0' and skip == '0' then
  local age = now_ms - (tonumber(began) or 0)
  if age >= 0 and age < tonumber(A_interval_ms) then
    if grouped and (redis.call('HGET', K_clean, 'newest') or '0') == '0' then return { 0, 0, again } end
    local grouped_all, more = pcall(group_failures)
    return { 0, 0, grouped_all and more and 1 or again }
  end
  cursor, skip, began = '0', 0, now_ms
  pcall(forget_totals)
  pcall(audit_pinned)
end
pcall(sweep, FAILED, 'failed')
pcall(trim, FAILED, 'failed')
local ungrouped
ok, ungrouped = pcall(group_failures)

tidy_names()
limits = limits or redis.call('EXISTS', LIMITS) == 1 and '0'
if limits then redis.call('HSET', K_clean, 'limits', audit_limits(limits)) end
uniques = uniques or redis.call('EXISTS', UNIQUES) == 1 and '0'
if uniques then redis.call('HSET', K_clean, 'uniques', audit_uniques(uniques)) end
batches = batches or redis.call('EXISTS', BATCHES) == 1 and '0'
if batches then redis.call('HSET', K_clean, 'batches', audit_batches(batches)) end
if has_logs then pcall(audit_logs, K_clean) end
redis.call('HSET', K_clean, 'cursor', cursor, 'skip', skip, 'began', began)
write_tallies()
local more = (cursor ~= '0' or skip > 0 or left <= 0 or ok and ungrouped) and 1 or again
if more == 0 then tell(A_duties, 'clean') end
return { removed, adopted, more }
