-- deregister: a worker that ends leaves the list; whatever it still holds goes back with the attempt unspent.
-- KEYS: worker workers
-- ARGV: name incarnation
-- FLAGS: allow-oom
-- INCLUDE: keys count settle sweep_waits queue_gate
-- Returns: jobs given back
-- Events: released canceled stopped queued
if redis.call('HGET', K_worker, 'incarnation') ~= A_incarnation then return 0 end
local held, back, queues = redis.call('HGETALL', worker_jobs_key(A_name)), 0, {}

local function give_back(id, exec)
  local key = job_key(id)
  local job = read_job(key)
  if job.status ~= 'started' or job.execution_id ~= exec then return end
  settle('released', id, key, job.origin, job, wip_key(job.origin), 'worker ended', A_name, {})
  back = back + 1
  queues[job.origin] = true
end

-- one that can't be given back (a broken key) is left to its lease
for i = 1, #held, 2 do pcall(give_back, held[i], held[i + 1]) end
write_tallies()
redis.call('DEL', K_worker, worker_jobs_key(A_name))
redis.call('SREM', K_workers, K_worker)
redis.call('SREM', FLEET, A_name)
readmit_all()
reopen_all(queues)
hand_on(A_name)
return back
