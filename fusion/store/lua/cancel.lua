-- cancel: a waiting job will not run; a running one will not run again.
-- KEYS: job
-- ARGV: id
-- INCLUDE: writer keys waits mark park callbacks count end_job inbox expiry ties
-- Uses: hooked tied
-- FLAGS: allow-oom
-- Returns: canceled | pending (it runs now and ends canceled unless this run finishes or fails) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
-- Events: canceled
local status, origin, log_tag, hooks, seq, set, expires, ties, class = unpack(redis.call('HMGET', K_job, 'status',
  'origin', 'log_tag', 'hooks', 'seq', 'waits_in', 'expires_at', 'ties', 'priority'))
if not status then return 'missing' end
if not seq and not is_ours(A_id, K_job, origin or '', status) then return 'foreign' end
if status == 'started' then
  redis.call('HSET', K_job, 'cancel', 1)
  return 'pending'
end
if is_terminal(status) then return status end
local queue = origin or ''
if is_foreign(status) and not set and not waits(A_id, queue) then return status end
if hooks then hooked[K_job] = true end
if ties then tied[K_job] = ties end
if is_list(queue) and not is_elsewhere(status) and not redis.call('ZSCORE', fifo_key(queue), A_id) then
  strike(queue, A_id)
end
cancel_job(A_id, K_job, queue, class, set_of(status, queue), log_tag, 'canceled', 'seq', seq or '')
meet(seq, nil, nil, queue, class)
if set then unpark(A_id, K_job, queue) end
forget_expiry(A_id, expires)
write_tallies()
return 'canceled'
