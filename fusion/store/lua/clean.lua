-- clean: forget jobs whose time in a terminal set is over or which are too many, and give old producers' entries a place; bounded.
-- KEYS: queues
-- ARGV: limit
-- FLAGS: allow-oom
-- INCLUDE: keys time score ring callbacks
-- Returns: {removed, adopted, again}
local left, removed, adopted = tonumber(A_limit), 0, 0

local function sweep(set, status)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. now_s, 'LIMIT', 0, left)) do
    redis.call('ZREM', set, id)
    if redis.pcall('HGET', job_key(id), 'status') == status then redis.call('DEL', job_key(id), dependents_key(id)) end
    removed, left = removed + 1, left - 1
  end
end

-- Over the cap of a set those go that were to go first, but none that ended less than a minute ago. Counted, so that it can be told.
local CAPS = { failed = FAILED_MAX, finished = FINISHED_MAX, canceled = CANCELED_MAX, stopped = CANCELED_MAX }
local young = iso_before(MIN_TTL * 1000000)

local function trim(set, status)
  local over = math.min(redis.call('ZCARD', set) - CAPS[status], left)
  if over <= 0 then return end
  local dropped = 0
  for _, id in ipairs(redis.call('ZRANGE', set, 0, over - 1)) do
    local job = redis.pcall('HMGET', job_key(id), 'status', 'ended_at')
    if job[1] == status and (job[2] or '') > young then break end
    redis.call('ZREM', set, id)
    if job[1] == status then
      redis.call('DEL', job_key(id), dependents_key(id))
      dropped = dropped + 1
    end
    removed, left = removed + 1, left - 1
  end
  if dropped > 0 then redis.call('HINCRBY', P .. 'dropped', status, dropped) end
end

-- A bare whole number as score is an old producer's priority; in our order it would come last of its class for ever.
local function adopt(queue)
  local ready = ready_key(queue)
  for class = 0, 2 do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', ready, class, class, 'LIMIT', 0, left)) do
      local seq = next_seq()
      redis.call('ZADD', ready, score_of(queue, class, seq), id)
      if redis.pcall('HEXISTS', job_key(id), 'data') == 1 then
        redis.call('HSET', job_key(id), 'seq', seq, 'priority', class)
        mark_hooks(job_key(id))
      end
      adopted, left = adopted + 1, left - 1
    end
  end
end

pcall(sweep, FAILED, 'failed')
pcall(trim, FAILED, 'failed')
for _, key in ipairs(redis.call('SMEMBERS', K_queues)) do
  local queue = queue_name(key)
  for _, status in ipairs({ 'finished', 'canceled', 'stopped' }) do
    pcall(sweep, set_of(status, queue), status)
    pcall(trim, set_of(status, queue), status)
  end
  pcall(adopt, queue)
  if left <= 0 then return { removed, adopted, 1 } end
end
return { removed, adopted, 0 }
