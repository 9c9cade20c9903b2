-- Failed jobs by what went wrong: a group for each class of error and the function of the user's own code in which it
-- was raised, whatever the line; without such a place, the function that the job calls. A job's hash names its group
-- in `failure_group`. Whatever fails a job has it join, whatever takes a failed job away has it leave; neither ever
-- fails what it is called by (pcall): `clean` finds what is left. Jobs of Fusion's own queues stand in none.
-- INCLUDE: keys time
-- RARER: is_counted_in count_failure take_out_failure leave_failure drop_failure_group failure_group_for join_failure
-- RARER: quarantine_failure
local MOST_GROUPS, OTHER, DAY_MS = 1000, 'other', 86400000

-- Whether the queue and the quarantine of a member stand in its group's counts. Not while these are made anew and have
-- not come to it.
local function is_counted_in(recount, failed_ms) return not recount or tonumber(failed_ms) <= tonumber(recount) end

local function count_failure(group, queue, quarantined, by)
  local queues = failure_queues_key(group)
  if tonumber(redis.call('ZINCRBY', queues, by, queue)) <= 0 then redis.call('ZREM', queues, queue) end
  if quarantined then redis.call('HINCRBY', failure_key(group), 'quarantined', by) end
end

-- `queue`: nil if nobody knows any more where it came from. Returns whether it was there.
local function take_out_failure(group, id, queue, quarantined)
  local key, jobs = failure_key(group), failure_jobs_key(group)
  local failed_ms = redis.call('ZSCORE', jobs, id)
  if not failed_ms then return false end
  redis.call('ZREM', jobs, id)
  local example, recount = unpack(redis.call('HMGET', key, 'example', 'recount'))
  if is_counted_in(recount, failed_ms) then
    if queue then count_failure(group, queue, quarantined, -1) else redis.call('HSET', key, 'inexact', 1) end
  end
  if example == id then
    local newest = redis.call('ZRANGE', jobs, -1, -1)[1]
    if newest then
      redis.call('HSET', key, 'example', newest)
    else
      redis.call('HDEL', key, 'example', 'quarantined', 'inexact', 'recount')
      redis.call('ZADD', FAILURES_EMPTY, redis.call('ZSCORE', FAILURES, group) or 0, group)
      redis.pcall('UNLINK', failure_queues_key(group)) -- mostly gone; a producer may not
    end
  end
  return true
end

-- A failed job goes, or starts over. Called while its hash is as it was.
local function leave_failure(id, key)
  local group, queue, origin, quarantined = unpack(redis.call('HMGET', key, 'failure_group', 'original_queue',
      'origin', 'quarantined'))
  if not group then return end
  take_out_failure(group, id, queue or origin or '', quarantined)
  redis.call('HDEL', key, 'failure_group')
end

local function drop_failure_group(group)
  redis.call('UNLINK', failure_key(group), failure_jobs_key(group), failure_queues_key(group))
  redis.call('ZREM', FAILURES, group)
  redis.call('ZREM', FAILURES_EMPTY, group)
end

-- The group of this class and place. If there are too many it takes the place of the one that holds no job and was not
-- seen for longest; or there is none such, and its jobs go into the group `other`.
local function failure_group_for(class, frame)
  local group = string.sub(redis.sha1hex(class .. '\n' .. frame), 1, 12)
  if not redis.call('ZSCORE', FAILURES, group) and redis.call('ZCARD', FAILURES) >= MOST_GROUPS then
    local gone = redis.call('ZRANGE', FAILURES_EMPTY, 0, 0)[1]
    if not gone then return OTHER, OTHER, '' end
    drop_failure_group(gone)
  end
  return group, class, frame
end

-- A job has failed, as its hash shows. `failed_ms`: nil for now; `again`: it had left as it went into the trash, and
-- this failure is counted already.
local function join_failure(id, key, failed_ms, again)
  local class, frame, reason, func, queue, origin, quarantined, before = unpack(redis.call('HMGET', key, 'error_class',
      'error_frame', 'reason', 'func', 'original_queue', 'origin', 'quarantined', 'failure_group'))
  queue, failed_ms = queue or origin or '', failed_ms or now_ms
  -- a version that knows no groups had it start over
  if before then take_out_failure(before, id, queue, quarantined) end
  if string.sub(queue, 1, 1) == '_' then return end
  if not class or class == '' then class = string.match(string.sub(reason or '', 1, 200), '^[^:]+') or 'unknown' end
  frame = frame and frame ~= '' and string.gsub(frame, ':%d+$', '') or func or ''
  local group
  group, class, frame = failure_group_for(class, frame)
  local group_key = failure_key(group)
  redis.call('HSET', key, 'failure_group', group)
  local is_new = redis.call('ZADD', failure_jobs_key(group), failed_ms, id) == 1
  -- from a former life, and was counted: the net under that record left it there
  if not is_new then redis.call('HSET', group_key, 'inexact', 1) end
  local first, last, recount, example = unpack(redis.call('HMGET', group_key, 'first', 'last', 'recount', 'example'))
  first, last = math.min(tonumber(first) or failed_ms, failed_ms), math.max(tonumber(last) or failed_ms, failed_ms)
  if last == failed_ms or not example or not redis.call('ZSCORE', failure_jobs_key(group), example) then
    example = id
  end
  redis.call('HSET', group_key, 'error_class', class, 'frame', frame, 'first', first, 'last', last, 'example', example)
  redis.call('ZADD', FAILURES, last, group)
  redis.call('ZREM', FAILURES_EMPTY, group)
  if is_counted_in(recount, failed_ms) then count_failure(group, queue, quarantined, 1) end
  if again then return end
  redis.call('HINCRBY', group_key, 'total', 1)
  if now_ms - failed_ms >= DAY_MS or failed_ms > now_ms then return end
  local minute = math.floor(failed_ms / 60000)
  local hour = P .. 'failure:' .. group .. ':' .. string.format('%d', math.floor(minute / 60))
  if redis.call('HINCRBY', hour, minute % 60, 1) == 1 then redis.call('EXPIRE', hour, 90000) end
end

-- A failed job is about to be set aside.
local function quarantine_failure(id, key)
  local group, quarantined = unpack(redis.call('HMGET', key, 'failure_group', 'quarantined'))
  if not group or quarantined then return end
  local failed_ms = redis.call('ZSCORE', failure_jobs_key(group), id)
  if failed_ms and is_counted_in(redis.call('HGET', failure_key(group), 'recount'), failed_ms) then
    redis.call('HINCRBY', failure_key(group), 'quarantined', 1)
  end
end
