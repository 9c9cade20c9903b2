-- delete: forget jobs that are not running, or put them into the trash.
-- ARGV: keep operation n_jobs
-- FLAGS: allow-oom
-- INCLUDE: writer keys mark count emit park expiry ties forget count_operation states
-- Uses: tied
-- Rest: ids
-- Returns: an answer per job: deleted | kept (deleted, and in the trash: with `keep` 1, if there is room) | missing |
--   started | foreign (another program's job) | a status that only a newer version knows | of an operation also: see
--   count_operation
-- Events: deleted
local function remove(id)
  local key = job_key(id)
  local status, origin, log_tag, seq, set, expires, ties, class = unpack(redis.call('HMGET', key, 'status', 'origin',
    'log_tag', 'seq', 'waits_in', 'expires_at', 'ties', 'priority'))
  local queue = origin or ''
  if not status then
    redis.call('ZREM', FAILED, id)
    return 'missing'
  end
  if not seq and not is_ours(id, key, queue, status) then return 'foreign' end
  if status == 'started' then return 'started' end
  if is_foreign(status) and not set and not waits(id, queue) then return status end
  if ties then tied[key] = ties end
  local counters = ties and counters_of_key(key)
  if set then unpark(id, key, queue) end
  local kept = throw_away(id, key, status, queue, A_keep)
  if not is_terminal(status) then
    meet(seq, nil, nil, queue, class)
    tally('deleted', queue, class, counters)
  end
  forget_expiry(id, expires)
  emit('deleted', id, queue, log_tag)
  return kept and 'kept' or 'deleted'
end

local answers, one = {}, of_operation(A_operation, remove)
for i = 1, tonumber(A_n_jobs) do
  local ok, answer = pcall(one, ARGV[REST + i - 1])
  if not ok then
    write_tallies() -- of those before it
    write_operation(A_operation)
    return error_reply(answer)
  end
  answers[i] = answer
end
write_tallies()
write_operation(A_operation)
return answers
