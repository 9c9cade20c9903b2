-- requeue: ended jobs start over in the queue they came from, at their old priority; with a delay they wait in the
--   schedule first.
-- KEYS: queues
-- ARGV: nonce keep_place quarantined retry_count delay_ms operation n_jobs
-- INCLUDE: writer keys mark time score count emit ring turns schedule expiry room each ties limit states batch again
-- INCLUDE: failures count_operation
-- Uses: tied
-- Rest: ids
-- Returns: an answer per job: ok | missing | corrupt (there is nothing to run) | foreign (another program's) |
--   quarantined (unless those were asked for) | duplicate and the id of the job that has its unique key |
--   cycle and how it would wait for itself |
--   error: why (a broken key; the others go on) | its status, which is none that can be requeued | of an operation
--   also: see count_operation
-- Events: queued scheduled deferred
-- `keep_place`: 1 = at the place that it had; front = before all others of its priority.
-- Same nonce again is a resend and answers ok. It has a field of its own: the producer's nonce goes on telling a
-- resent enqueue. A delayed one goes from its terminal set to the schedule in this one call: at no moment could it be
-- claimed early. It gets its arrival number when it is due, as a job does that was enqueued for that time.
local delay = tonumber(A_delay_ms)

local function requeue(id)
  local key = job_key(id)
  local status, nonce, origin, original, priority, seq, data, log_tag, ttl, quarantined,
    times, ties, fair_key = unpack(redis.call('HMGET', key, 'status', 'requeue_nonce', 'origin', 'original_queue',
    'priority', 'seq', 'data', 'log_tag', 'ttl', 'quarantined', 'requeued', 'ties', 'fair_key'))
  if not status then
    redis.call('ZREM', FAILED, id)
    return 'missing'
  end
  if nonce == A_nonce then return 'ok' end
  if not seq and not is_ours(id, key, origin or '', status) then return 'foreign' end
  if not may_be_requeued(status) then return status end
  if quarantined and A_quarantined ~= '1' then return 'quarantined' end
  local queue = original or origin
  if not data or not queue then return 'corrupt' end
  local why = refuses_again(id, key, queue, ties)
  if why then return why end
  local waits = waits_again(id, key, ties, true)

  redis.call('SADD', K_queues, queue_key(queue))
  if waits then
    redis.call('ZADD', set_of('deferred', queue), now_ms, id)
    redis.call('HSET', key, 'seq', '', 'arrival', next_seq())
    if delay > 0 then redis.call('HSET', key, 'due', string.format('%d', now_ms + delay)) end
  elseif delay > 0 then
    schedule(id, now_ms + delay)
    if A_keep_place ~= '1' then redis.call('HSET', key, 'seq', '', 'arrival', next_seq()) end
  elseif A_keep_place == '1' then
    line_up_again(queue, id, key, priority, seq)
  elseif A_keep_place == 'front' then
    seq = -redis.call('INCR', P .. 'seq:front')
    enter_line(queue, score_of(queue, priority, seq), id)
    redis.call('HSET', key, 'seq', seq)
  else
    seq = turn_of(queue, priority, next_seq(), fair_key or '')
    line_up(queue, id, priority, seq)
    redis.call('HSET', key, 'seq', seq)
  end
  if status == 'failed' then pcall(leave_failure, id, key) end -- once nothing that was refused leaves it as it was
  local now = waits and 'deferred' or delay > 0 and 'scheduled' or 'queued'
  redis.call('HSET', key, 'status', now, 'origin', queue, 'enqueued_at', now_iso,
    'requeue_nonce', A_nonce, 'retryCount', A_retry_count, 'lost', 0, 'requeued', (tonumber(times) or 0) + 1)
  if ties and string.find(ties, '[dh]') then -- canceled before it arrived: this call wants it to run
    ties = string.gsub(ties, '[dh]', '')
    redis.call('HSET', key, 'ties', ties)
  end
  if ties then tied[key] = ties end
  tally('requeued', queue, priority, ties and counters_of_key(key))
  redis.call('HDEL', key, 'ended_at', 'exc_info', 'reason', 'error_class', 'error_bases', 'error_frame', 'quarantined',
    'cancel', 'held_since', 'execution_id', 'expires_at', 'at_front', 'begun', 'spared', 'suspect',
    'queue_timeout', 'wanted', 'retry_since', 'pin')
  if A_keep_place == 'front' and now ~= 'queued' then redis.call('HSET', key, 'at_front', 1) end
  local given = not waits and not tonumber(ttl) and timeout_of(queue)
  if given then redis.call('HSET', key, 'queue_timeout', given) end
  ttl = given or tonumber(ttl) and ttl * 1000
  if ttl and not waits then
    local expires_at = math.floor(now_ms + delay + ttl)
    redis.call('HSET', key, 'expires_at', expires_at)
    expect_expiry(id, expires_at)
  end
  if ties and string.find(ties, 'b', 1, true) then enter_again(id, key) end
  redis.call('PERSIST', key)
  redis.call('ZREM', set_of(status, origin or queue), id)
  if waits then
    emit('deferred', id, queue, log_tag, 'reason', 'requeued')
  elseif delay > 0 then
    local due = now_ms + delay
    emit('scheduled', id, queue, log_tag, 'reason', 'requeued', 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
  else
    emit('queued', id, queue, log_tag, 'reason', 'requeued')
    if not on_arrive(id, key, queue) then ring(queue) end
  end
  return 'ok'
end

local answers = each(of_operation(A_operation, requeue), REST, tonumber(A_n_jobs))
write_tallies()
write_operation(A_operation)
return answers
