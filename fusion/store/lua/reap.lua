-- reap: give back what expired leases held, of all queues, a bounded number at a time; and see to jobs that are
--   blocked for too long.
-- ARGV: lease_ms interval_ms limit n_queues
-- FLAGS: allow-oom
-- INCLUDE: keys time count end_job settle life sweep_waits queue_gate ties
-- Rest: the caller's own queues (looked at even if they are not in the index of leases)
-- Returns: {recovered, again, holding}
-- Events: abandoned failed canceled stopped queued
-- However many call it: within half an interval of the last look nothing is done, unless that one left something over.
local last, more, lease_ms = unpack(redis.call('HMGET', REAP, 'last', 'more', 'lease'))
if more ~= '1' and last and now_ms >= tonumber(last) and now_ms - last < A_interval_ms / 2 then return { 0, 0, 0 } end
local more_waits = sweep_waits(math.ceil(A_limit / 3), tonumber(A_lease_ms))
local hold = hold_until(tonumber(A_lease_ms))
redis.call('HSET', REAP, 'last', now_ms, 'hold', hold, 'more', 0)
if now_ms < hold then
  write_tallies()
  return { 0, 0, 1 }
end

local left, recovered, LOOKS, queues_of = tonumber(A_limit), 0, 100, {}

local function give_back(queue, wip, id)
  local key = job_key(id)
  local job = read_job(key)
  if job.status == 'started' and job.origin == queue then
    local worker = job.worker_name or '?'
    recover(id, key, queue, job, wip, 'lease expired; worker ' .. worker .. ' is gone or cut off', worker)
    redis.pcall('HDEL', worker_jobs_key(worker), id)
    recovered = recovered + 1
  elseif job.status and is_foreign(job.status) then
    error('left to a newer version') -- put off
  elseif job.status then
    redis.call('ZREM', wip, id)
  else
    fail_corrupt(id, queue, wip, 'its data vanished while it ran', true)
  end
end

-- a lease further away than two of the longest in use was written by a clock that has since been set back
local far = now_ms + 2 * math.max(tonumber(lease_ms) or 0, tonumber(A_lease_ms))
local function sweep(queue)
  local wip = wip_key(queue)
  for _, range in ipairs({ { LEAST_LEASE, now_ms }, { far, '(+inf' } }) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', wip, range[1], range[2], 'LIMIT', 0, math.max(left, 0))) do
      if left <= 0 then break end
      -- what can't be given back (a broken key) makes room for those behind it and is tried again a lease later
      queues_of[queue] = true
      if not pcall(give_back, queue, wip, id) then redis.call('ZADD', wip, now_ms + A_lease_ms, id) end
      left = left - weight_of(job_key(id))
    end
  end
end

-- The index says of each queue when its first lease ends, or earlier: leases are renewed without it.
local function look_again(queue)
  local first = redis.pcall('ZRANGEBYSCORE', wip_key(queue), LEAST_LEASE, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first.err then
    redis.call('ZADD', LEASES, now_ms + A_lease_ms, queue)
  elseif first[2] then
    redis.call('ZADD', LEASES, first[2], queue)
  else
    redis.call('ZREM', LEASES, queue)
  end
end

local again = 0
for _, range in ipairs({ { '-inf', now_ms }, { far, '+inf' } }) do
  local queues = redis.pcall('ZRANGEBYSCORE', LEASES, range[1], range[2], 'LIMIT', 0, LOOKS)
  for _, queue in ipairs(queues) do
    if left > 0 then
      pcall(sweep, queue)
      pcall(look_again, queue)
    end
  end
  if #queues == LOOKS then again = 1 end
end
for i = 1, tonumber(A_n_queues) do
  if left > 0 then pcall(sweep, ARGV[REST + i - 1]) end
end
if left <= 0 or more_waits then again = 1 end
write_tallies()
reopen_all(queues_of)
if again == 1 then redis.call('HSET', REAP, 'more', 1) end
return { recovered, again, 0 }
