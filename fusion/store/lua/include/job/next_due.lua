-- When the next job is due (ms since 1970), nil for none. rq-scheduler keeps its entries in the same ZSET, and moves
-- them when it likes: those that are overdue count for nothing.
-- INCLUDE: keys time schedule
local function next_due()
  local first = redis.pcall('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  if first[2] and ms_of(first[2]) <= now_ms then
    local from = string.format('%.17g', (now_ms + 1) / 1000)
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, '-inf', '(' .. from, 'LIMIT', 0, 20)) do
      if redis.pcall('HEXISTS', job_key(id), 'seq') == 1 then return now_ms end
    end
    first = redis.call('ZRANGEBYSCORE', SCHEDULED, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  return first[2] and ms_of(first[2])
end
