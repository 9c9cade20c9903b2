-- deregister: a worker that ends leaves the list; whatever it still holds goes back with the attempt unspent (what had
--   begun a limited number of times), a bounded number of jobs at a time.
-- KEYS: worker workers
-- ARGV: name incarnation
-- FLAGS: allow-oom
-- INCLUDE: keys count settle queue_gate portion
-- Returns: {jobs given back, 1 if it is to call again: it stays in the list until the last call}
-- Events: released canceled stopped queued
if redis.call('HGET', K_worker, 'incarnation') ~= A_incarnation then return { 0, 0 } end
local back, queues = 0, {}

local whole = give_portion(A_name, function(id, exec, key)
  local job = read_job(key)
  if job.status ~= 'started' or job.execution_id ~= exec then return end
  local begun = mark_of(exec) ~= AHEAD or redis.call('HGET', key, 'begun') == exec
  if not begun or let_off(key) then
    settle('released', id, key, job.origin, job, wip_key(job.origin), 'worker ended', A_name, {})
  else
    settle('lost', id, key, job.origin, job, wip_key(job.origin), 'worker ended' .. PUT_BACK, A_name, {})
  end
  back = back + 1
  queues[job.origin] = true
end)
write_tallies()
if whole then
  redis.call('DEL', K_worker)
  redis.call('SREM', K_workers, K_worker)
  redis.call('SREM', FLEET, A_name)
  hand_on({ [A_name] = true })
end
reopen_all(queues)
return { back, whole and 0 or 1 }
