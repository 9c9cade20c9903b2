-- restore: jobs come back out of the trash: ended ones into their sets, others wait again, at their old places.
-- KEYS: queues
-- ARGV: nonce n_jobs
-- INCLUDE: writer keys time score count emit ring schedule expiry room each ties limit batch again states releasing
-- INCLUDE: failures trash
-- Uses: tied
-- Rest: ids
-- Returns: an answer per job: restored | missing (it is not in the trash, or no longer) | taken (a job of this
--   id lives) | duplicate and the id of the job that has its unique key | cycle and how it would wait for
--   itself | full (its queue) | expired (its ttl is over) | error: why (a broken key; the others go on)
-- Events: queued scheduled deferred restored
-- What a job waits for is asked again: limits, unique keys, parents. A time that it waited for, and that of its ttl, go
-- on. Its index first: should anything fail, an entry without a record is found and dropped.
-- Same nonce again is a resend and answers as before.

-- Out of the trash: what leads to it is written.
local function bring_back(id, key, ...)
  redis.call('RENAME', trash_key(id), key)
  redis.call('HSET', key, 'requeue_nonce', A_nonce, ...)
  redis.call('HDEL', key, 'trash_score', 'trash_failed', 'pin')
  drop_from_trash(id, true)
end

local KEPT_FOR = { finished = RESULT_TTL, failed = FAILURE_TTL }

-- It has what is left of its time, or if that is over as long as it had at first; so has one that others kept.
local function restore_ended(id, key, queue, status, score, own_ttl, log_tag, failed_ms)
  local seconds = tonumber(own_ttl) or KEPT_FOR[status] or CANCELED_TTL
  if not score or tonumber(score) <= now_s or score == 'inf' and seconds >= 0 then
    score = string.format('%d.%06d', now_s + math.min(math.max(MIN_TTL, seconds), 1e9), math.max(1, now_us))
  end
  redis.call('ZADD', set_of(status, queue), score, id)
  bring_back(id, key)
  if tonumber(score) < math.huge then
    redis.call('PEXPIRE', key, string.format('%d', 1000 * (tonumber(score) - now_s + 3600)))
  else
    redis.call('PERSIST', key)
  end
  if status == 'failed' then pcall(join_failure, id, key, tonumber(failed_ms), true) end
  emit('restored', id, queue, log_tag, 'reason', status)
end

-- Those that others held back go on waiting; those that may run are reported soon.
local function restore_deferred(id, key, queue, priority, ties, log_tag)
  local waits = waits_again(id, trash_key(id), ties)
  redis.call('ZADD', set_of('deferred', queue), now_ms, id)
  local batch, as = unpack(redis.call('HMGET', trash_key(id), 'batch', 'batch_as'))
  bring_back(id, key, 'arrival', next_seq())
  if as then join_batch(batch, id, as) elseif not waits then release_later(id) end
  emit('deferred', id, queue, log_tag, 'reason', 'restored')
end

local function restore_waiting(id, key, queue, priority, seq, ties, due, expires, log_tag)
  local now = due and 'scheduled' or 'queued'
  if due then
    schedule(id, due)
    bring_back(id, key, 'status', now)
    emit('scheduled', id, queue, log_tag, 'reason', 'restored', 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
  else
    if not tonumber(seq) then seq = next_seq() end
    enter_line(queue, score_of(queue, priority, seq), id)
    bring_back(id, key, 'status', now, 'seq', seq)
    redis.call('HDEL', key, 'at_front', 'arrival')
    emit('queued', id, queue, log_tag, 'reason', 'restored')
  end
  if expires then expect_expiry(id, expires) end
end

local function restore(id)
  local key, kept = job_key(id), trash_key(id)
  if redis.call('HGET', key, 'requeue_nonce') == A_nonce then return 'restored' end
  local status, origin, priority, seq, ties, log_tag, expires, score, failed_ms, ttl, failure_ttl, func =
    unpack(redis.call('HMGET', kept, 'status', 'origin', 'priority', 'seq', 'ties', 'log_tag', 'expires_at',
    'trash_score', 'trash_failed', 'result_ttl', 'failure_ttl', 'func'))
  if not status or not origin or not is_in_trash(id) then return 'missing' end
  if redis.call('EXISTS', key) == 1 then return 'taken' end
  if is_terminal(status) then
    if status == 'finished' then
      ttl = ttl or func and STORED_RESULT_TTL
    else
      ttl = status == 'failed' and failure_ttl
    end
    redis.call('SADD', K_queues, queue_key(origin))
    if ties then tied[key] = ties end
    restore_ended(id, key, origin, status, score, ttl, log_tag, failed_ms)
    return 'restored'
  end

  if expires and tonumber(expires) <= now_ms then return 'expired' end
  local due = status == 'scheduled' and score and ms_of(score)
  if due and due <= now_ms then due = nil end
  if status ~= 'deferred' and not due then
    local most = most_of(origin)
    if most and length_of(origin) >= most then return 'full' end
  end
  local why = refuses_again(id, kept, origin, ties)
  if why then return why end
  redis.call('SADD', K_queues, queue_key(origin))
  if ties then tied[key] = ties end
  if status == 'deferred' then
    restore_deferred(id, key, origin, priority, ties, log_tag)
  else
    waits_again(id, kept, ties, true)
    redis.call('UNLINK', unmet_key(id)) -- it waited for none of them when it was deleted
    restore_waiting(id, key, origin, priority, seq, ties, due, expires, log_tag)
  end
  redis.call('PERSIST', key)
  tally('requeued', origin, priority, ties and counters_of_key(key))
  if ties and string.find(ties, 'b', 1, true) then enter_again(id, key) end
  if status ~= 'deferred' and not due and not on_arrive(id, key, origin) then ring(origin) end
  return 'restored'
end

local answers = each(restore, REST, tonumber(A_n_jobs))
write_tallies()
return answers
