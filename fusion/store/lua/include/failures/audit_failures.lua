-- Looks whether each failed job stands in its group, and each group holds but failed jobs of its own, some at a time.
-- So jobs get a group that failed in a version without groups, and what vanished leaves it.
-- INCLUDE: keys failures mark time
-- RARER: ms_of_iso adopt_failure adopt_failures adopt_newest audit_group audit_failure_groups drop_old_groups
local FAILURES_ADOPTED, FAILURES_LOOKED_AT, GROUPS_DROPPED = 25, 50, 20

-- The reverse of `iso` (civil date to days: Howard Hinnant); nil for what is no such time.
local function ms_of_iso(text)
  local year, month, day, hour, minute, second, micros = string.match(text or '',
    '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)%.?(%d*)Z?$')
  if not year then return nil end
  year, month = tonumber(year), tonumber(month)
  if month <= 2 then year = year - 1 end
  local of_year = math.floor((153 * (month + (month > 2 and -3 or 9)) + 2) / 5) + day - 1
  local century = math.floor(year / 100)
  local days = 365 * year + math.floor(year / 4) - century + math.floor(century / 4) + of_year - 719468
  local ms = math.floor(tonumber('0.' .. (micros == '' and '0' or micros)) * 1000)
  return ((days * 24 + hour) * 60 + minute) * 60000 + second * 1000 + ms
end

-- Returns whether it had no group.
local function adopt_failure(id)
  local key = job_key(id)
  local job = redis.pcall('HMGET', key, 'status', 'failure_group', 'original_queue', 'origin', 'ended_at')
  if job.err or job[1] ~= 'failed' or string.sub(job[3] or job[4] or '', 1, 1) == '_' then return false end
  if job[2] and redis.call('ZSCORE', failure_jobs_key(job[2]), id) or is_rqs(key) then return false end
  join_failure(id, key, ms_of_iso(job[5]))
  return true
end

-- Returns the next cursor.
local function adopt_failures(cursor)
  local following, found = unpack(redis.call('ZSCAN', FAILED, cursor, 'COUNT', FAILURES_ADOPTED))
  for i = 1, #found, 2 do pcall(adopt_failure, found[i]) end
  return following
end

-- Some of those that failed last, as far as they are kept equally long and not for ever: a worker of a version without
-- groups may have failed them since. `nth`: how many were looked at. Goes on while it finds such jobs; returns the next
-- `nth`, 0 at the end.
local function adopt_newest(nth)
  local first, met = redis.call('ZCOUNT', FAILED, '+inf', '+inf') + nth, false
  local found = redis.call('ZREVRANGE', FAILED, first, first + FAILURES_LOOKED_AT - 1)
  for _, id in ipairs(found) do
    local ok, adopted = pcall(adopt_failure, id)
    met = met or ok and adopted
  end
  return met and #found == FAILURES_LOOKED_AT and nth + FAILURES_LOOKED_AT or 0
end

-- Some members of a group from an instant on, all of one instant together. Returns the next instant, nil at the end,
-- and how many there were, and how many too many.
local function audit_group(group, from, limit)
  local key, jobs, stale = failure_key(group), failure_jobs_key(group), 0
  local found = redis.call('ZRANGEBYSCORE', jobs, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  local last = #found == 2 * limit and found[#found]
  for _, id in ipairs(last and redis.call('ZRANGEBYSCORE', jobs, last, last, 'LIMIT', 0, 1000) or {}) do
    found[#found + 1], found[#found + 2] = id, last
  end
  local recount, seen = redis.call('HGET', key, 'recount'), {}
  for i = 1, #found, 2 do
    local id, failed_ms = found[i], found[i + 1]
    if not seen[id] then
      seen[id] = true
      local job = redis.pcall('HMGET', job_key(id), 'status', 'failure_group', 'original_queue', 'origin',
        'quarantined')
      local queue = job[3] or job[4]
      if job[1] ~= 'failed' or job[2] ~= group then
        -- a record that does not name the group is of another life of that id, which came from where it liked
        take_out_failure(group, id, job[2] == group and queue or nil, job[5])
        stale = stale + 1
      elseif recount and not is_counted_in(recount, failed_ms) then
        count_failure(group, queue or '', job[5], 1)
      end
    end
  end
  if last then
    if recount then redis.call('HSET', key, 'recount', last) end
    return '(' .. last, #found / 2, stale
  end
  if redis.call('EXISTS', jobs) == 0 and redis.call('ZSCORE', FAILURES, group) then
    redis.call('ZADD', FAILURES_EMPTY, 'NX', redis.call('ZSCORE', FAILURES, group), group)
  end
  if recount then redis.call('HDEL', key, 'recount') end
  if redis.call('HDEL', key, 'inexact') == 0 then return nil, #found / 2, stale end
  redis.call('DEL', failure_queues_key(group))
  redis.call('HSET', key, 'recount', 0, 'quarantined', 0)
  return '-inf', #found / 2, stale
end

-- Where a pass over all groups goes on, `<group> <instant>`: returns the next such place, and whether there may be much
-- to do there.
local function audit_failure_groups(at)
  local group, from = string.match(at or '', '^(%w+) (%S+)$')
  local groups, left, removed = redis.call('ZRANGE', FAILURES, 0, -1), FAILURES_LOOKED_AT, 0
  table.sort(groups)
  local nth = 1
  while groups[nth] and group and groups[nth] < group do nth = nth + 1 end
  if groups[nth] ~= group then from = nil end
  while groups[nth] and left > 0 do
    local ok, following, looked, stale = pcall(audit_group, groups[nth], from or '-inf', left)
    if not ok then following, looked, stale = nil, 0, 0 end
    left, removed = left - looked - 1, removed + stale
    from = following
    if not from then nth = nth + 1 end
  end
  return groups[nth] and groups[nth] .. ' ' .. (from or '-inf') or '', removed > FAILURES_LOOKED_AT / 4
end

-- Groups that hold no job are forgotten a day after their last failure.
local function drop_old_groups()
  local found = redis.call('ZRANGEBYSCORE', FAILURES_EMPTY, '-inf', now_ms - DAY_MS, 'LIMIT', 0, GROUPS_DROPPED)
  for _, group in ipairs(found) do
    if redis.call('EXISTS', failure_jobs_key(group)) == 1 then
      redis.call('ZREM', FAILURES_EMPTY, group)
    else
      drop_failure_group(group)
    end
  end
end

-- `cursor`: where the pass over failed jobs goes on, `at`: that over groups, which waits for the end of the first of
-- the other, `newest`: how many of the newest failed jobs were looked at. Returns where the next call goes on with the
-- three, and whether it had better come soon.
local function audit_failures(cursor, at, newest, grouped)
  drop_old_groups()
  cursor = adopt_failures(cursor)
  if not grouped and cursor ~= '0' then return cursor, at or '', 0, true end
  newest = adopt_newest(tonumber(newest) or 0)
  local following, much = audit_failure_groups(at)
  return cursor, following, newest, much or newest > 0
end
