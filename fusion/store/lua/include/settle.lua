-- Where an execution leads when it did not finish: shared by what a worker reports and by what others find out for it.

-- The fields a transition needs; absent ones are false.
local function read_job(key)
  local found = redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'priority', 'seq', 'result_ttl', 'failure_ttl', 'cancel',
    'lost', 'on_lost', 'attempts', 'log_tag', 'worker_name', 'reason')
  return { status = found[1], execution_id = found[2], origin = found[3], priority = found[4], seq = found[5], result_ttl = found[6],
    failure_ttl = found[7], cancel = found[8], lost = found[9], on_lost = found[10], attempts = found[11], log_tag = found[12],
    worker_name = found[13], reason = found[14] }
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
