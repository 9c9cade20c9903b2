-- When the next job, or something of a concurrency key, is due (ms since 1970), nil for none. rq-scheduler keeps its
-- entries in the same ZSET, and moves them when it likes: those that are overdue count for nothing.
-- `limits`: false if nothing of any concurrency key is due at any time.
-- INCLUDE: keys limit_keys time schedule
local function next_due(limits)
  local limit = limits and tonumber(redis.pcall('ZRANGE', LIMITS_DUE, 0, 0, 'WITHSCORES')[2])
  if limit and limit <= now_ms then return now_ms end
  local first = redis.pcall('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  if first[2] and ms_of(first[2]) <= now_ms then
    local from = string.format('%.17g', (now_ms + 1) / 1000)
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, '-inf', '(' .. from, 'LIMIT', 0, 20)) do
      if redis.pcall('HEXISTS', job_key(id), 'seq') == 1 then return now_ms end
    end
    first = redis.call('ZRANGEBYSCORE', SCHEDULED, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  local job = first[2] and ms_of(first[2])
  return limit and math.min(limit, job or limit) or job
end
