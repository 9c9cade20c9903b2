-- A job with an `h` among its ties is stored deferred (`accept`), and nobody but its maker releases it: by this, or by
-- `release_later` where this has no room, as in a turn. Its wait is over then: it arrives now, in its queue, or in the
-- schedule if its time is still to come. Its ttl begins now, or then.
-- INCLUDE: keys time score emit ring turns room schedule expiry ties limit end_job
-- RARE: undefer ring_released
-- Uses: tied
local released = {} -- queues that jobs have entered, by the best priority among these

-- Whoever calls it calls `ring_released` at the end. False if the job is not deferred: of several callers one does it.
-- `front`: before all others of its priority, whatever it was enqueued with.
local function undefer(id, key, queue, front)
  local status, origin, priority, log_tag, ties, fair_key, at_front, due, ttl, hooks = unpack(redis.call('HMGET', key,
      'status', 'origin', 'priority', 'log_tag', 'ties', 'fair_key', 'at_front', 'due', 'ttl', 'hooks'))
  if status ~= 'deferred' then return false end
  queue = origin or queue
  if ties then
    ties = string.gsub(ties, 'h', '')
    tied[key] = ties ~= '' and ties or nil
  end
  front, due = front or at_front, tonumber(due)
  local later, seq = due and due > now_ms, nil
  redis.call('SADD', QUEUES, queue_key(queue))
  if later then
    schedule(id, due)
    redis.call('HSET', key, 'status', 'scheduled', 'ties', ties or '', unpack(front and { 'at_front', 1 } or {}))
  else
    seq = front and -redis.call('INCR', P .. 'seq:front') or turn_of(queue, priority, next_seq(), fair_key or '')
    if front then enter_line(queue, score_of(queue, priority, seq), id) else line_up(queue, id, priority, seq) end
    redis.call('HSET', key, 'status', 'queued', 'ties', ties or '', 'seq', seq, 'enqueued_at', now_iso)
    redis.call('HDEL', key, 'at_front', 'arrival')
  end
  local given = not tonumber(ttl) and timeout_of(queue)
  if given then redis.call('HSET', key, 'queue_timeout', given) end
  ttl = given or tonumber(ttl) and ttl * 1000
  if ttl then
    local expires_at = math.floor((later and due or now_ms) + ttl)
    redis.call('HSET', key, 'expires_at', expires_at)
    expect_expiry(id, expires_at)
  end
  redis.call('HDEL', key, 'due', 'reason')
  redis.call('ZREM', set_of('deferred', queue), id)
  if later then
    emit('scheduled', id, queue, log_tag, 'reason', 'released', 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
    return true
  end
  emit('queued', id, queue, log_tag, 'reason', 'released')
  local way = on_arrive(id, key, queue)
  if way == DISCARD then
    discard(id, key, queue, log_tag, true)
  elseif not way then
    released[queue] = math.max(released[queue] or 0, class_of(priority))
  end
  return true
end

local function ring_released()
  for queue, class in pairs(released) do ring(queue, class) end
end
