-- A job's end, whatever ended it: into the terminal set first, out of the old one last (Lua has no rollback).
-- Terminal sets are scored by expiry in seconds; the hash's own EXPIRE is later and only a net for a lost index.
-- INCLUDE: keys time callbacks count emit ties kin on_end failures expiry
-- RARE: call_off fail_job discard
-- RARER: fail_corrupt fail_deferred
-- Uses: hooked tied
local NET_SECONDS, LONGEST_TTL, ended_before = 3600, 1e9, 0
local net_of, net -- seconds that the last job is kept, and its EXPIRE as text

-- `status`: also `expired` and `discarded`, which are `canceled` for a reason of their own. `ttl`: seconds, a number.
local function end_job(id, key, queue, class, status, ttl, leave, ...)
  local what = status == 'finished' and 'completed' or status
  if what == 'expired' or what == 'discarded' then status = 'canceled' end
  local seconds, expiry = ttl, '+inf'
  if seconds >= 0 then
    if seconds < MIN_TTL then seconds = MIN_TTL elseif seconds > LONGEST_TTL then seconds = LONGEST_TTL end
    seconds = seconds - seconds % 1
    -- with the fraction, so that jobs stand in the order in which they ended; as text: a number gets 17 digits
    if (now_us + ended_before) % 1000000 == 0 then ended_before = ended_before + 1 end -- stock RQ has whole seconds
    local micros = now_us + ended_before
    expiry = string.format('%d.%06d', now_s + seconds + (micros - micros % 1000000) / 1000000, micros % 1000000)
    ended_before = ended_before + 1 -- inside one call too
  end
  local others = tied[key] ~= 'k' and tied[key] -- if a concurrency key is not its only tie
  local pinned = others and pin_while_read(id, key, expiry)
  if pinned then seconds, expiry = -1, '+inf' end
  redis.call('ZADD', status == 'failed' and FAILED or P .. status .. ':' .. queue, expiry, id)
  redis.call('HSET', key, 'status', status, ...)
  tally(what, queue, class, tied[key] and counters_of_key(key))
  if seconds >= 0 and not (others and string.find(others, 'p', 1, true)) then
    if seconds ~= net_of then net_of, net = seconds, string.format('%d', 1000 * (seconds + NET_SECONDS)) end
    redis.call('PEXPIRE', key, net)
  else -- that of one with parents comes when it has left them (`expire_later`)
    redis.call('PERSIST', key)
  end
  if leave then
    -- the queue's name may have been forgotten meanwhile, and `clean` goes by the names
    if leave == SCHEDULED and status ~= 'failed' then redis.call('SADD', QUEUES, queue_key(queue)) end
    redis.call('ZREM', leave, id)
  end
  on_end(id, key, queue, status)
  if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
  if hooked[key] then tell_ended(id, key, queue, status) end
end

-- People want it to run no more. `status`: canceled | stopped; `why`: what follows that word in its event.
local function call_off(status, id, key, queue, class, leave, log_tag, why, ...)
  end_job(id, key, queue, class, status, CANCELED_TTL, leave, 'ended_at', now_iso, 'reason', status, ...)
  if status == 'stopped' then
    emit('stopped', id, queue, log_tag, 'reason', status .. why)
  else
    emit('canceled', id, queue, log_tag, 'reason', status .. why)
  end
end

-- `told`: the fields of its event. `reason` goes into the hash alone, as it may be an error's text.
local function fail_job(id, key, queue, class, leave, log_tag, ttl, reason, told, ...)
  end_job(id, key, queue, class, 'failed', tonumber(ttl) or FAILURE_TTL, leave, 'reason', reason, ...)
  pcall(join_failure, id, key)
  emit('failed', id, queue, log_tag, unpack(told))
end

-- An index entry that leads to no job. What can't be a job's own record (no id, or its key holds something else, or
-- another program's job) gets one made for it. `known`: Fusion wrote the entry. Else it comes in now, unless the hash
-- of a job that came in is there.
local function fail_corrupt(id, queue, leave, what, known)
  local why, record, raw = 'corrupt: ' .. what, id, string.sub(id, 1, 1024)
  local kind = is_id(id) and redis.call('TYPE', job_key(id)).ok
  local marked = kind == 'hash' and redis.call('HEXISTS', job_key(id), 'seq') == 1
  local others = kind == 'hash' and not marked
  if others or kind ~= 'hash' and kind ~= 'none' then record = 'corrupt-' .. redis.sha1hex(id) end
  if kind == 'hash' then tied[job_key(id)] = redis.call('HGET', job_key(id), 'ties') end
  local class = marked and redis.call('HGET', job_key(id), 'priority')
  fail_job(record, job_key(record), queue, class, nil, '', nil, why, { 'reason', why }, 'origin', queue,
    'original_queue', queue, 'ended_at', now_iso, 'exc_info', why, 'raw_id', raw, 'seq', '')
  if not marked and not (known and kind == 'none') then meet(nil, nil, nil, queue, class) end
  if leave then redis.call('ZREM', leave, id) end
end

-- A job that was to run at once or not at all, and whose key has no slot for it as it first arrives: it is canceled.
-- `tell`: its URLs are called; not where the caller's answer reports it.
local function discard(id, key, queue, log_tag, tell)
  local class, hooks = unpack(redis.call('HMGET', key, 'priority', 'hooks'))
  if tell and hooks then hooked[key] = true end
  end_job(id, key, queue, class, 'discarded', CANCELED_TTL, ready_key(queue), 'ended_at', now_iso,
    'reason', 'discarded')
  forget_expiry(id, true)
  emit('canceled', id, queue, log_tag, 'reason', 'discarded')
end

-- A job that waits for others fails: it never ran.
local function fail_deferred(id, key, queue, class, why)
  local priority, log_tag, ttl, hooks, ties = unpack(redis.call('HMGET', key, 'priority', 'log_tag', 'failure_ttl',
      'hooks', 'ties'))
  if hooks then hooked[key] = true end
  tied[key] = ties or nil
  fail_job(id, key, queue, priority, set_of('deferred', queue), log_tag, ttl, why, { 'reason', class },
    'ended_at', now_iso, 'error_class', class, 'exc_info', class .. ': ' .. why)
  redis.call('HDEL', key, 'due')
end
