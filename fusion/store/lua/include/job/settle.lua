-- Where an execution leads when it did not finish: shared by what a worker reports and by what others find out for it.
-- INCLUDE: keys time callbacks emit end_job expiry history ring schedule score ties limit
-- RARE: settle recover wish_of let_off
-- Uses: hooked tied

-- The fields a transition needs; absent ones are false. One with `func` is compact: what is absent in it has a
-- meaning.
local function read_job(key)
  local found = redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'priority', 'seq', 'result_ttl',
    'failure_ttl', 'cancel', 'lost', 'on_lost', 'attempts', 'log_tag', 'worker_name', 'reason', 'hooks', 'expires_at',
    'func', 'ties', 'spared')
  if found[15] then hooked[key] = true end
  if found[18] then tied[key] = found[18] end
  local read = { status = found[1], execution_id = found[2], origin = found[3], priority = found[4], seq = found[5],
    result_ttl = found[6] or found[17] and STORED_RESULT_TTL,
    failure_ttl = found[7], cancel = found[8], lost = found[9], on_lost = found[10],
    attempts = found[11], log_tag = found[12], worker_name = found[13], ['reason'] = found[14],
    expires_at = found[16], spared = found[19] }
  return read
end

-- What people want of a job that runs: it is to end so, unless its run finishes or fails.
local function wish_of(job) return job.cancel == 'stop' and 'stopped' or 'canceled' end

-- Whether an execution that had begun goes back uncharged. At most `SPARED` do, one after another without an outcome:
-- what comes after them counts as lost, so that a job ends some day, whatever puts it back.
local SPARED, PUT_BACK = 5, ' (put back too often)'
local function let_off(key) return redis.call('HINCRBY', key, 'spared', 1) <= SPARED end

-- Ends an execution without an outcome: given back by its worker (`released`, the attempt unspent), or `lost`.
-- 1 A cancel or a stop is pending: canceled, stopped. 2 Lost, and on_lost is "fail": failed. 3 Lost MAX_LOST times:
-- failed, unless on_lost is "again". 4 Else queued at its old place, or scheduled, after the second loss and later
-- ones, at growing intervals.
-- `job.shared`: others ran beside it, and nobody knows which of them took down what they had in common. Such a loss
-- fails no job; it counts up to PROBATION, from where on the job runs alone and answers for its losses.
-- `job.unbegun`: the loss is not the job's own and counts for nothing but on_lost. `job.displaced`: its process was
-- killed for another job that ran in it. `job.suspect`: it ran in a process with others, which died of one of them; it
-- runs with half as many next, in the end alone, until it has an outcome.
-- Returns true if the job has failed by it.
local function settle(outcome, id, key, queue, job, leave, reason, worker, more)
  local before, size = tonumber(job.lost) or 0, cut(more, 'suspect')
  local shared = job.shared and math.max(before, math.min(before + 1, PROBATION))
  local lost = outcome == 'lost' and (job.unbegun and before or shared or before + 1)
  note_attempt(key, worker, outcome, reason, more, nil, now_iso)
  if lost then
    more[#more + 1] = 'lost'
    more[#more + 1] = lost
  end
  if job.cancel then
    call_off(wish_of(job), id, key, queue, job.priority, leave, job.log_tag, ' while running; ' .. reason,
      unpack(more))
    return
  elseif lost and (job.on_lost == 'fail' or lost >= MAX_LOST and not job.shared and job.on_lost ~= 'again') then
    local why = string.gsub(reason, ' %[FUS%-%d%d%d%]', '') .. (job.on_lost == 'fail' and ' (on_lost="fail")'
      or ' (lost ' .. lost .. ' times: a poison pill; requeue it once the cause is mended)') .. ' [FUS-152]'
    redis.call('HDEL', key, 'error_bases', 'error_frame', 'suspect') -- of an earlier run
    fail_job(id, key, queue, job.priority, leave, job.log_tag, job.failure_ttl, why, { 'reason', why, 'worker',
      worker or '', 'lost', lost }, 'ended_at', now_iso, 'exc_info', 'fusion.exceptions.JobLost: ' .. why,
      'error_class', 'fusion.exceptions.JobLost', unpack(more))
    return true
  end

  if lost then
    more[#more + 1] = 'reason'
    more[#more + 1] = reason
    if size or job.suspect then more[#more + 1], more[#more + 2] = 'suspect', size or 1 end
  end
  local pause = 0
  -- a half more or less: those that were lost together need not meet again
  if lost and lost > 1 and not job.unbegun then
    local chance = tonumber(string.sub(redis.sha1hex(id .. lost), 1, 4), 16) / 65536
    pause = math.floor(1000 * 2 ^ math.min(lost - 2, 6) * (0.5 + chance))
  end
  if pause > 0 then
    schedule(id, now_ms + pause)
  else
    line_up_again(queue, id, key, job.priority, job.seq)
  end
  redis.call('HSET', key, 'status', pause > 0 and 'scheduled' or 'queued', unpack(more))
  redis.call('PERSIST', key)
  expect_expiry(id, job.expires_at)
  redis.call('ZREM', leave, id)
  if pause == 0 then ring(queue) end
  if job.displaced then
    emit('displaced', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
  elseif lost then
    emit('abandoned', id, queue, job.log_tag, 'reason', reason, 'worker', worker, 'lost', lost, 'delay_ms', pause,
      'blame', (job.shared or job.unbegun) and 'shared' or 'job')
  else
    emit('released', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
  end
  on_return(id, key, queue)
end

-- A loss found out by others: should the execution come back to life, nothing it says counts any more. One claimed
-- ahead that was not told begun had run for a moment at most; so that a job which takes its worker down in that moment
-- ends some day, a limited number is let off.
local function recover(id, key, queue, job, leave, reason, worker)
  local exec = job.execution_id or ''
  job.shared = mark_of(exec) ~= ALONE -- its worker ran nothing else
  if mark_of(exec) == AHEAD and redis.call('HGET', key, 'begun') ~= exec then
    job.unbegun = let_off(key)
  end
  settle('lost', id, key, queue, job, leave, reason, worker, {})
  redis.call('HDEL', key, 'execution_id')
end
