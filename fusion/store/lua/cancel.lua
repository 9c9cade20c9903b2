-- cancel: a waiting job will not run; a running one will not run again.
-- KEYS: job
-- ARGV: id
-- INCLUDE: count withdraw
-- FLAGS: allow-oom
-- Returns: canceled | pending (it runs now and ends canceled unless this run finishes or fails) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
-- Events: canceled
local answer = withdraw(A_id, K_job, 'canceled', 1)
write_tallies()
return answer
