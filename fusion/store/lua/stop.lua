-- stop: a waiting job will not run; the worker of a running one is told to end its run.
-- KEYS: job
-- ARGV: id
-- INCLUDE: count withdraw
-- FLAGS: allow-oom
-- Returns: stopped | pending (it runs now and ends stopped unless this run finishes or fails first) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
-- Events: stopped
-- A worker that hears nothing now reads the wish when it renews the lease.
local answer, _, exec, worker = withdraw(A_id, K_job, 'stopped', 'stop')
if answer == 'pending' and exec and worker then
  redis.pcall('PUBLISH', P .. 'pubsub:' .. worker, cjson.encode({ command = 'stop-job', job_id = A_id,
    execution_id = exec }))
end
write_tallies()
return answer
