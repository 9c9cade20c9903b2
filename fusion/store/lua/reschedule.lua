-- reschedule: a job that waits for a time waits for another.
-- KEYS: job
-- ARGV: id due_ms
-- INCLUDE: writer keys time emit schedule expiry
-- FLAGS: allow-oom
-- Returns: ok | missing | foreign (another program's job) | its status, which is not scheduled
-- Events: scheduled
-- The ttl of one that was enqueued or requeued for a time counts from that time, and moves along, as does what its
-- queue gave it in place of one; that of a retry, or of one that was held back or lost, does not. Those have a reason.
local status, queue, log_tag, ttl, reason, seq, timeout = unpack(redis.call('HMGET', K_job, 'status', 'origin',
    'log_tag', 'ttl', 'reason', 'seq', 'queue_timeout'))
if not status then return 'missing' end
if not seq then return 'foreign' end
if status ~= 'scheduled' then return status end
local due = tonumber(A_due_ms)
local before = redis.call('ZSCORE', SCHEDULED, A_id)
if before and ms_of(before) == due then return 'ok' end
schedule(A_id, due)
ttl = tonumber(ttl) and ttl * 1000 or tonumber(timeout)
if ttl and not reason then
  local expires_at = math.floor(math.max(due, now_ms) + ttl)
  redis.call('HSET', K_job, 'expires_at', expires_at)
  expect_expiry(A_id, expires_at)
end
emit('scheduled', A_id, queue or '', log_tag, 'reason', 'rescheduled', 'due', iso(math.floor(due / 1000),
    due % 1000 * 1000))
return 'ok'
