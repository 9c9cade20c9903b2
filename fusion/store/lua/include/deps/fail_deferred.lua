-- A job that waits for others fails: it never ran.
-- INCLUDE: keys time end_job ties callbacks
-- RARER: fail_deferred
-- Uses: hooked tied
local function fail_deferred(id, key, queue, class, why)
  local priority, log_tag, ttl, hooks, ties = unpack(redis.call('HMGET', key, 'priority', 'log_tag', 'failure_ttl',
      'hooks', 'ties'))
  if hooks then hooked[key] = true end
  tied[key] = ties or nil
  fail_job(id, key, queue, priority, set_of('deferred', queue), log_tag, ttl, why, { 'reason', class },
    'ended_at', now_iso, 'error_class', class, 'exc_info', class .. ': ' .. why)
  redis.call('HDEL', key, 'due')
end
