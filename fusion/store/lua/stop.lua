-- stop: a waiting job will not run; the worker of a running one gets the request to end its run.
-- KEYS: job
-- ARGV: id operation
-- INCLUDE: count withdraw count_operation
-- FLAGS: allow-oom
-- Returns: stopped | pending (it runs now and ends stopped unless this run finishes or fails first) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
--   | of an operation also: see count_operation
-- Events: stopped
-- A worker that does not receive it now reads the request when it renews the lease.
local function stop(id)
  local answer, _, exec, worker = withdraw(id, K_job, 'stopped', 'stop')
  if answer == 'pending' and exec and worker then
    redis.pcall('PUBLISH', P .. 'pubsub:' .. worker, cjson.encode({ command = 'stop-job', job_id = id,
      execution_id = exec }))
  end
  return answer
end

local answer = of_operation(A_operation, stop)(A_id)
write_tallies()
write_operation(A_operation)
return answer
