-- promote: scheduled jobs that are due go to their queues, concurrency keys of which something is due are settled, and
--   jobs that waited for others are released, a bounded number at a time.
-- KEYS: scheduled
-- ARGV: limit duties
-- INCLUDE: keys time score count emit ring turns schedule ties limit sound end_job undefer release_some releasing
-- INCLUDE: tell
-- Uses: steps_left tied
-- FLAGS: allow-oom
-- Returns: {moved, ms to the next due one or -1, ms to the next whose ttl is over or -1, the same of batches}
-- Events: queued held
-- A job that had a place gets it back; one that was enqueued for this time arrives now. Those of one instant go in the
-- order of their numbers, so a batch ends between two scores. rq-scheduler keeps its entries in the same ZSET: what
-- has no mark of ours stays as it is, and keeps none of ours waiting.
-- entries of one score that are sorted; more have it only if others than Fusion's newer versions wrote them
local MOST = 1000
-- seconds until a job whose queue is broken is looked at again, so that it keeps nobody else waiting
local moved, rung, PUT_OFF = 0, {}, 30

local function move(id, job)
  local key = job_key(id)
  local status, queue, priority, seq, log_tag, front, _, ties, fair_key = unpack(job, 1, 9)
  if ties then tied[key] = ties end
  if status ~= 'scheduled' then
    if is_foreign(status) then error('left to a newer version') end -- put off
  else
    local broken = ties and broken_limit(redis.call('HGET', key, 'concurrency_key') or '', queue)
    if broken then
      redis.call('ZADD', K_scheduled, now_s + PUT_OFF, id)
      redis.call('HSET', key, 'reason', broken)
      return emit('held', id, queue, log_tag, 'reason', 'its concurrency key is broken')
    end
    if tonumber(seq) then
      redis.call('ZADD', ready_key(queue), score_of(queue, priority, seq), id)
      redis.call('HSET', key, 'status', 'queued')
    else
      seq = front and -redis.call('INCR', P .. 'seq:front')
        or turn_of(queue, priority, next_seq(), fair_key or '')
      if front then
        redis.call('ZADD', ready_key(queue), score_of(queue, priority, seq), id)
        redis.call('HDEL', key, 'at_front')
      else
        line_up(queue, id, priority, seq)
      end
      redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'enqueued_at', now_iso)
    end
    redis.call('PERSIST', key)
    emit('queued', id, queue, log_tag, 'reason', 'due')
    local way = on_arrive(id, key, queue)
    if way == DISCARD then discard(id, key, queue, log_tag, true) elseif not way then rung[queue] = true end
    moved = moved + 1
  end
  redis.call('ZREM', K_scheduled, id)
end

local limit, upto = tonumber(A_limit), string.format('(%.17g', (now_ms + 1) / 1000)

-- What is due of ours from a score on, in its order, and whether there is more than was looked at.
local function read(from)
  local found = redis.call('ZRANGEBYSCORE', K_scheduled, from, upto, 'WITHSCORES', 'LIMIT', 0, limit + 1)
  local count, due = #found / 2, {}
  local more = count > limit
  if more then
    local last = found[2 * count]
    repeat count = count - 1 until count == 0 or found[2 * count] ~= last
    if count == 0 then
      found = redis.call('ZRANGEBYSCORE', K_scheduled, last, last, 'WITHSCORES', 'LIMIT', 0, MOST)
      count = #found / 2
    end
  end
  for i = 1, count do
    local id, score = found[2 * i - 1], found[2 * i]
    local job = redis.pcall('HMGET', job_key(id), 'status', 'origin', 'priority', 'seq', 'log_tag', 'at_front',
        'arrival', 'ties', 'fair_key')
    local before = due[#due]
    if job[4] then
      due[#due + 1] = { id = id, job = job, score = score, number = tonumber(job[4]) or tonumber(job[7]) or 0,
        group = before and before.group + (before.score == score and 0 or 1) or 1 }
    end
  end
  return due, more
end

local due, more = read('-inf')
if not due[1] and more then -- nothing but others' entries: ours stand behind them, and chance finds where
  local rank = now_us % redis.call('ZCOUNT', K_scheduled, '-inf', upto)
  due = read(redis.call('ZRANGE', K_scheduled, rank, rank, 'WITHSCORES')[2])
end
local count = #due
if count > 1 and due[count].group < count then
  table.sort(due, function(a, b)
    if a.group ~= b.group then return a.group < b.group end
    if a.number ~= b.number then return a.number < b.number end
    return a.id < b.id
  end)
end
local left = limit -- by weight
for i = 1, math.min(count, limit) do
  if left <= 0 then break end
  local id = due[i].id
  if not pcall(move, id, due[i].job) then redis.call('ZADD', K_scheduled, now_s + PUT_OFF, id) end
  left = left - weight_of(job_key(id))
end
-- One look for what few have. Jobs are released here where no worker learns of them.
local others = redis.call('EXISTS', LIMITS_DUE, P .. 'releasing', GRAPHS, BATCHES_DUE) > 0
steps_left = math.max(20, math.min(left, 80)) -- where jobs have moved, others have a share all the same
for _, name in ipairs(others and redis.pcall('ZRANGEBYSCORE', LIMITS_DUE, '-inf', now_ms, 'LIMIT', 0, limit) or {}) do
  if steps_left <= 0 then break end
  redis.call('ZREM', LIMITS_DUE, name)
  if not pcall(look_due, name) then redis.call('ZADD', LIMITS_DUE, now_ms + 1000 * PUT_OFF, name) end
end
if others then
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', GRAPHS, '-inf', now_ms - 60000, 'LIMIT', 0, 10)) do
    give_up(token) -- whoever sent it is gone
  end
  release_some(math.max(5, math.min(math.ceil(left / 4), 20)))
end
write_tallies()
ring_released()
for queue in pairs(rung) do
  redis.call('SADD', QUEUES, queue_key(queue)) -- it may have been forgotten while the job waited for its time
  ring(queue)
end
local first = next_due(true)
local expiry = redis.pcall('ZRANGE', EXPIRING, 0, 0, 'WITHSCORES')
local expires = expiry.err and 0 or expiry[1] and math.max(0, math.ceil(tonumber(expiry[2]) - now_ms)) or -1
local batch = others and redis.pcall('ZRANGE', BATCHES_DUE, 0, 0, 'WITHSCORES') or {}
local tends = batch[1] and math.max(0, math.ceil(tonumber(batch[2]) - now_ms)) or -1
local due_in = first and math.max(0, first - now_ms) or -1
-- With work left, all others look, too.
if due_in ~= 0 and not (others and redis.call('EXISTS', P .. 'releasing') == 1) then
  tell(A_duties, 'promote', due_in, expires, tends)
end
return { moved, due_in, expires, tends }
