-- The commit half of `turn`: one outcome of one execution, told by the worker that held it.
-- INCLUDE: keys time callbacks count emit end_job expiry history limit park releasing ring schedule score settle ties
-- INCLUDE: turns queue_gate kin
-- OFTEN: queue_of_keyed
-- RARE: error_of gives_up_place set_result_aside has_moved delay_within put_off line_up_behind fail_or_retry
-- RARER: renew_ttl repeat_job
-- Exports: freed left
-- Uses: hooked tied
-- Events: completed failed retry held canceled stopped queued scheduled

-- What events tell of an error: its class and place. Its text may hold whatever the task was given.
local function error_of(reason, more)
  local class, frame
  for i = 1, #more, 2 do
    if more[i] == 'error_class' then class = more[i + 1] elseif more[i] == 'error_frame' then frame = more[i + 1] end
  end
  class = class or string.match(reason, '^[%a_][%w_.]*') or ''
  return frame and class .. ' at ' .. frame or class
end

-- For an event: the class alone of what the job's callback raised. None, if it did not.
local nothing = {}
local function callback_error(more)
  local found = nothing
  for i = 1, #more, 2 do
    if more[i] == 'callback_error' then
      found = { 'callback_error', string.sub(string.match(more[i + 1], '^%l+_%l+[^:]*: ([^%s:]+)') or '', 1, 200) }
    end
  end
  return found
end

-- Whether a retry goes behind those that wait; that flag is taken out of its fields.
local function gives_up_place(more)
  for i = #more - 1, 1, -2 do
    if more[i] == 'seq' then
      table.remove(more, i)
      table.remove(more, i)
      return true
    end
  end
  return false
end

-- A result that is not kept stands aside, where only the event's reader looks, until the job itself goes: a minute.
local function set_result_aside(more)
  for i = 1, #more, 2 do
    if more[i] == 'result' then more[i] = 'result_once' end
  end
end

-- Whether a cursor goes with the outcome: one that Redis did not have.
local function has_moved(more)
  for i = 1, #more, 2 do
    if more[i] == 'cursor' then return true end
  end
  return false
end

-- A job that can't run now goes into the set of those that wait for its task if it was `held`, else into the schedule.
local function put_off(kind, id, key, queue, job, wip, delay, reason, more)
  local since = kind == 'held' and (tonumber(redis.call('HGET', key, 'held_since')) or now_ms)
  local task = cut(more, 'task') or ''
  if kind ~= 'later' and kind ~= 'limited' and not (since and now_ms - since < HOLD_MS) then return false end
  local set = since and string.find(task, '^[%w_.]+$') and #task <= 200 and 'held:' .. queue .. ':' .. task
  if set and has_room(set) then
    park(id, key, queue, set, score_of(queue, job.priority, tonumber(job.seq) or next_seq()), since + HOLD_MS, reason,
      'reason', reason, 'held_since', since, unpack(more))
  else
    schedule(id, now_ms + (since and math.max(delay, math.min(math.floor((now_ms - since) / 2), 8 * delay)) or delay))
    redis.call('HSET', key, 'status', 'scheduled', 'reason', reason, unpack(more))
    if since then redis.call('HSET', key, 'held_since', since) else redis.call('HDEL', key, 'held_since') end
    on_leave(id, key, queue)
  end
  expect_expiry(id, job.expires_at)
  redis.call('ZREM', wip, id)
  emit('held', id, queue, job.log_tag, 'worker', job.worker_name, 'reason', error_of(reason, more))
  return true
end

-- Behind those that wait, with a turn of its own.
local function line_up_behind(queue, id, key, priority)
  local seq = turn_of(queue, priority, next_seq(), redis.call('HGET', key, 'fair_key') or '')
  redis.call('HSET', key, 'seq', seq)
  enter_line(queue, score_of(queue, priority, seq), id)
end

-- The delay of a retry whose policy bounds them in time: the last one comes when its time is over, and after that none,
-- which is nil. It counts from the first failure on.
local function delay_within(key, delay, more)
  local within = tonumber(cut(more, 'within') or nil)
  if not within then return delay end
  local since = tonumber(redis.call('HGET', key, 'retry_since'))
  local left = (since or now_ms) + within - now_ms
  if left <= 0 then
    cut(more, 'retryCount')
    return nil
  end
  if not since then more[#more + 1], more[#more + 2] = 'retry_since', now_ms end
  return math.min(delay, left)
end

-- A job that raised waits for its next attempt, or has failed. True if it was to be retried, and that is too late.
local function fail_or_retry(kind, id, key, queue, job, wip, started, ended, elapsed, delay, reason, more, raised)
  local worker, attempts = job.worker_name, (tonumber(job.attempts) or 0) + 1
  if kind == 'retry' then delay = delay_within(key, delay, more) end
  local over = not delay
  if over then
    kind = 'failed'
    gives_up_place(more)
    cut(more, 'keep_slot')
  end
  note_attempt(key, worker, kind == 'retry' and 'retry' or 'failed', reason, more, started, ended)
  -- of an earlier run; this one may have no such thing
  redis.call('HDEL', key, 'error_class', 'error_bases', 'error_frame', 'held_since', 'suspect', 'spared')
  if kind ~= 'retry' then
    local told = { 'worker', worker or '', 'reason', error_of(reason, more), 'attempts', attempts, 'elapsed_us',
      elapsed, unpack(raised) }
    fail_job(id, key, queue, job.priority, wip, job.log_tag, job.failure_ttl, reason, told, 'attempts', attempts,
      'lost', 0, 'started_at', started, 'ended_at', ended, unpack(more))
    return over
  end
  local back, keeps_slot = gives_up_place(more), cut(more, 'keep_slot')
  -- else its queue is broken
  local at_once
  if delay <= 0 and back then
    at_once = pcall(line_up_behind, queue, id, key, job.priority)
  elseif delay <= 0 then
    at_once = pcall(line_up_again, queue, id, key, job.priority, job.seq)
  end
  if not at_once then schedule(id, now_ms + delay) end
  if back and at_once then
    redis.call('HSET', key, 'enqueued_at', now_iso)
  elseif back then
    redis.call('HSET', key, 'seq', '', 'arrival', job.seq or '')
  end
  redis.call('HSET', key, 'status', at_once and 'queued' or 'scheduled', 'attempts', attempts, 'lost', 0,
    'started_at', started, 'ended_at', ended, 'reason', reason, unpack(more))
  expect_expiry(id, job.expires_at)
  redis.call('ZREM', wip, id)
  emit('retry', id, queue, job.log_tag, 'worker', worker, 'reason', error_of(reason, more), 'attempts', attempts,
    'elapsed_us', elapsed, 'delay_ms', delay, unpack(raised))
  if not at_once and keeps_slot then
    on_return(id, key, queue)
  elseif not at_once then
    on_leave(id, key, queue)
  else
    emit('queued', id, queue, job.log_tag, 'reason', 'due')
    ring(queue)
    on_return(id, key, queue)
  end
end

-- The ttl of a job counts anew for its next run, which is due in `delay` ms.
local function renew_ttl(id, key, delay)
  local ttl, queue_timeout = unpack(redis.call('HMGET', key, 'ttl', 'queue_timeout'))
  ttl = tonumber(ttl) and ttl * 1000 or tonumber(queue_timeout)
  if not ttl then return end
  local expires_at = string.format('%d', now_ms + delay + ttl)
  redis.call('HSET', key, 'expires_at', expires_at)
  expect_expiry(id, expires_at)
end

-- A run has finished of a job that is to run again: in this same call it gets its place for that. It has not ended, so
-- its batch and who else waits for its end wait on; its children do not. It leaves the slot of its key, as if it had
-- ended.
local function repeat_job(id, key, queue, job, wip, started, ended, elapsed, delay, more, raised)
  if tonumber(job.result_ttl) == 0 then set_result_aside(more) end
  note_attempt(key, job.worker_name, 'finished', '', more, started, ended)
  -- else its queue is broken
  local at_once = delay <= 0 and pcall(line_up_behind, queue, id, key, job.priority)
  if not at_once then
    schedule(id, now_ms + delay)
    more[#more + 1], more[#more + 2], more[#more + 3], more[#more + 4] = 'seq', '', 'arrival', job.seq or ''
  end
  redis.call('HSET', key, 'status', at_once and 'queued' or 'scheduled', 'enqueued_at', now_iso, 'started_at', started,
    'ended_at', ended, 'lost', 0, unpack(more))
  redis.call('HDEL', key, 'reason', 'exc_info', 'error_class', 'error_bases', 'error_frame', 'held_since', 'begun',
    'spared', 'wanted', 'suspect', 'retry_since', 'progress', 'cursor')
  renew_ttl(id, key, delay)
  redis.call('ZREM', wip, id)
  local counters = tied[key] and counters_of_key(key)
  tally('completed', queue, job.priority, counters)
  tally('requeued', queue, job.priority, counters)
  emit('completed', id, queue, job.log_tag, 'worker', job.worker_name, 'elapsed_us', elapsed, unpack(raised))
  if hooked[key] then tell_ended(id, key, queue, 'finished') end
  if string.find(tied[key] or '', 'c', 1, true) then do_later('b ' .. id) end
  on_leave(id, key, queue, 'finished')
  if at_once then
    emit('queued', id, queue, job.log_tag, 'reason', 'repeated')
    if not on_arrive(id, key, queue) then ring(queue) end
  else
    local due = now_ms + delay
    emit('scheduled', id, queue, job.log_tag, 'reason', 'repeated', 'due',
      iso(math.floor(due / 1000), due % 1000 * 1000))
  end
end

-- The queue of a running job that was enqueued without options and claimed once, if this is its execution; else nil.
-- With the fields that its claim wrote it has status, origin, created_at, seq, func, data, execution_id, worker_name,
-- started_at and deliveries. If these are ten there is none else to read.
local PLAIN_FIELDS = 10
local function queue_of_plain(key, exec)
  if redis.call('HLEN', key) ~= PLAIN_FIELDS then return nil end
  local found = redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'func')
  return found[1] == 'started' and found[2] == exec and found[4] and found[3]
end

-- The same of one that has no option but a concurrency key. It has ties and concurrency_key besides, and
-- max_concurrent, if its enqueue named that.
local function queue_of_keyed(key, exec)
  local size = redis.call('HLEN', key)
  if size ~= PLAIN_FIELDS + 2 and size ~= PLAIN_FIELDS + 3 then return nil end
  local status, execution_id, queue, func, ties, name, max = unpack(redis.call('HMGET', key, 'status', 'execution_id',
      'origin', 'func', 'ties', 'concurrency_key', 'max_concurrent'))
  if size ~= PLAIN_FIELDS + (max and 3 or 2) or ties ~= 'k' or not name then return nil end
  if not (status == 'started' and execution_id == exec and func) then return nil end
  note_key_alone(key, name)
  return queue
end

local left = { queue = nil } -- by queue: finished jobs that are to leave those that run, all together
local freed = { queue = nil } -- queues of which an execution has ended in this call

-- Compare-and-set on (status, execution_id). Answers: ok | failed (the job has failed, where its outcome alone does
-- not say so: its retry came too late, or its loss was the last) | stale (another execution holds or held the job
-- since) | gone (no such job); and whether it changed anything: an outcome that stands already is ok too. `more`:
-- hash fields as the worker encoded them (result, exc_info, meta ...). `raised`: of `callback_error`. `keyed`: the job
-- may have no option but a concurrency key, which shows here.
local function commit(kind, id, exec, elapsed, age, delay, reason, more, raised, keyed)
  local key = job_key(id)
  local queue, job -- a plain job's fields are known
  if keyed then
    queue = queue_of_keyed(key, exec)
  elseif kind == 'finished' then
    queue = queue_of_plain(key, exec)
  end
  if not queue then
    job = read_job(key)
    if not job.status then return 'gone', false end
    if job.execution_id ~= exec then return 'stale', false end
    if job.status ~= 'started' then return job.status == 'failed' and kind ~= 'failed' and 'failed' or 'ok', false end
    queue = job.origin
  end
  local wip = kind ~= 'finished' and wip_key(queue)
  local started = iso_before(age + elapsed)
  local ended = iso_before(age + 0)
  freed[queue] = true
  if kind == 'limited' and tied[key] then
    pcall(hold_key_back, key, now_ms + delay)
  elseif kind == 'limited' then
    pcall(hold_back, queue, now_ms + delay)
  end

  if kind == 'repeat' and job.cancel then kind = 'finished' end -- people want it to run no more
  if kind == 'finished' then
    local dropped = job and tonumber(job.result_ttl) == 0 and not keeps_result(id, key)
    local ttl = not job and STORED_RESULT_TTL or tonumber(job.result_ttl) or RESULT_TTL
    if dropped then set_result_aside(more) end
    end_job(id, key, queue, job and job.priority, 'finished', ttl, nil, 'started_at', started, 'ended_at', ended,
      unpack(more))
    if dropped then redis.call('HDEL', key, 'result') end
    if job and (job.attempts or job.lost or job.reason or job.cancel or job.spared) then
      redis.call('HDEL', key, 'lost', 'reason', 'exc_info', 'error_class', 'error_bases', 'error_frame', 'cancel',
        'held_since', 'begun', 'spared', 'wanted', 'suspect')
    end
    local ids = left[queue]
    if ids then ids[#ids + 1] = id else left[queue] = { id } end
    emit('completed', id, queue, job and job.log_tag, 'worker', job and job.worker_name or A_name, 'elapsed_us',
      elapsed, unpack(raised))
  elseif kind == 'repeat' then
    repeat_job(id, key, queue, job, wip, started, ended, elapsed, delay, more, raised)
  elseif kind == 'release' or kind == 'lost' or kind == 'struck' or kind == 'displaced' or kind == 'suspect' then
    if has_moved(more) then -- it gets somewhere: what was before counts no more
      if job.lost and kind == 'release' then more[#more + 1], more[#more + 2] = 'lost', 0 end
      job.lost = false
      redis.call('HDEL', key, 'spared')
    end
    local begun = kind == 'displaced' or kind == 'suspect' or cut(more, 'spared')
    if begun and not let_off(key) then
      if cut(more, 'suspect') then more[#more + 1], more[#more + 2] = 'suspect', 1 end
      kind, reason = 'lost', reason .. PUT_BACK
    elseif begun and kind == 'release' then
      more[#more + 1], more[#more + 2] = 'lost', job.lost or 0
    end
    job.displaced, job.suspect = kind == 'displaced', kind == 'suspect'
    job.unbegun = job.displaced or job.suspect
    job.shared = job.unbegun or kind == 'struck' and mark_of(exec) ~= ALONE
    local outcome = kind == 'release' and 'released' or 'lost'
    if settle(outcome, id, key, queue, job, wip, reason, job.worker_name, more) then return 'failed', true end
  elseif kind == 'stopped' or job.cancel and kind ~= 'failed' then
    local status = kind == 'stopped' and kind or wish_of(job)
    cut(more, 'within')
    note_attempt(key, job.worker_name, status, reason, more, started, ended)
    call_off(status, id, key, queue, job.priority, wip, job.log_tag, ' while running', unpack(more))
  elseif not put_off(kind, id, key, queue, job, wip, delay, reason, more) and fail_or_retry(kind, id, key, queue, job,
        wip, started, ended, elapsed, delay, reason, more, raised) then
    return 'failed', true
  end
  return 'ok', true
end
