-- Where an execution leads when it did not finish: shared by what a worker reports and by what others find out for it.
local STATE = { 'status', 'execution_id', 'origin', 'priority', 'seq', 'result_ttl', 'failure_ttl', 'cancel', 'lost', 'on_lost',
  'attempts', 'log_tag', 'worker_name', 'reason' }

-- The fields a transition needs, by name; absent ones are false.
local function read_job(key)
  local values = redis.call('HMGET', key, unpack(STATE))
  local job = {}
  for i = 1, #STATE do job[STATE[i]] = values[i] end
  return job
end

-- Back to its queue and place. `leave` is the set it stood in.
local function put_back(id, key, queue, job, leave, ...)
  line_up_again(queue, id, key, job.priority, job.seq)
  redis.call('HSET', key, 'status', 'queued', ...)
  redis.call('PERSIST', key)
  redis.call('ZREM', leave, id)
  ring(queue)
end

-- Its worker gives it back, the attempt unspent. A pending cancel wins.
local function release(id, key, queue, job, leave, reason, worker)
  if job.cancel then
    cancel_job(id, key, queue, leave, job.log_tag, 'canceled while running; ' .. reason)
  else
    put_back(id, key, queue, job, leave)
    emit('released', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
  end
end

-- A job whose execution vanished. A pending cancel wins; then on_lost; then the poison cap; else it runs again.
local function lose(id, key, queue, job, leave, reason, worker)
  local lost = (tonumber(job.lost) or 0) + 1
  if job.cancel then
    cancel_job(id, key, queue, leave, job.log_tag, 'canceled while running; ' .. reason, 'lost', lost)
  elseif job.on_lost == 'fail' or lost >= MAX_LOST then
    local why = reason .. (job.on_lost == 'fail' and ' (on_lost="fail")'
      or ' (lost ' .. lost .. ' times: a poison pill; requeue it once the cause is mended)')
    fail_job(id, key, queue, leave, job.log_tag, job.failure_ttl, why, 'ended_at', now_iso, 'lost', lost,
      'exc_info', 'fusion.exceptions.JobLost: ' .. why)
  else
    put_back(id, key, queue, job, leave, 'lost', lost)
    emit('abandoned', id, queue, job.log_tag, 'reason', reason, 'worker', worker, 'lost', lost)
  end
end

-- The same, found out by others: should the execution come back to life, nothing it says counts any more.
local function recover(id, key, queue, job, leave, reason, worker)
  lose(id, key, queue, job, leave, reason, worker)
  redis.call('HDEL', key, 'execution_id')
end
