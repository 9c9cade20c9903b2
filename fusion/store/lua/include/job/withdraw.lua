-- A job that waits, for whatever, ends at once. Of one that runs the wish is kept: it ends so as soon as its run does
-- without finishing or failing, and its worker learns of the wish when it renews the lease.
-- INCLUDE: writer keys mark park callbacks count end_job inbox expiry ties states
-- Uses: hooked tied

-- `status`: canceled | stopped; `wish`: the word of it that a running job's hash keeps. Answers: `status` | pending |
-- missing | its terminal status, or one that only a newer version knows | foreign (another program's job). Behind
-- `pending` comes what the hash says of the run: the wish before this, the execution and its worker.
local function withdraw(id, key, status, wish)
  local was, origin, log_tag, hooks, seq, set, expires, ties, class, before, exec, worker = unpack(redis.call('HMGET',
    key, 'status', 'origin', 'log_tag', 'hooks', 'seq', 'waits_in', 'expires_at', 'ties', 'priority', 'cancel',
    'execution_id', 'worker_name'))
  if not was then return 'missing' end
  if not seq and not is_ours(id, key, origin or '', was) then return 'foreign' end
  if was == 'started' then
    if before ~= 'stop' then redis.call('HSET', key, 'cancel', wish) end -- who wants it stopped wants no less
    return 'pending', before, exec, worker
  end
  if is_terminal(was) then return was end
  local queue = origin or ''
  if is_foreign(was) and not set and not waits(id, queue) then return was end
  if hooks then hooked[key] = true end
  if ties then tied[key] = ties end
  if is_list(queue) and not is_elsewhere(was) and not redis.call('ZSCORE', fifo_key(queue), id) then
    strike(queue, id)
  end
  call_off(status, id, key, queue, class, set_of(was, queue), log_tag, '', 'seq', seq or '')
  meet(seq, nil, nil, queue, class)
  if set then unpark(id, key, queue) end
  forget_expiry(id, expires)
  return status
end
