-- A job that was to run at once or not at all, and whose key has no slot for it as it first arrives: it is canceled.
-- INCLUDE: keys time callbacks emit end_job expiry
-- RARE: discard
-- Uses: hooked
-- `tell`: its URLs hear of it; not where the caller's answer says so.
local function discard(id, key, queue, log_tag, tell)
  local class, hooks = unpack(redis.call('HMGET', key, 'priority', 'hooks'))
  if tell and hooks then hooked[key] = true end
  end_job(id, key, queue, class, 'discarded', CANCELED_TTL, ready_key(queue), 'ended_at', now_iso,
    'reason', 'discarded')
  forget_expiry(id, true)
  emit('canceled', id, queue, log_tag, 'reason', 'discarded')
end
