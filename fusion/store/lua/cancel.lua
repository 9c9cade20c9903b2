-- cancel: a waiting job will not run; a running one will not run again.
-- KEYS: job
-- ARGV: id operation
-- INCLUDE: count withdraw count_operation
-- FLAGS: allow-oom
-- Returns: canceled | pending (it runs now and ends canceled unless this run finishes or fails) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
--   | of an operation also: see count_operation
-- Events: canceled
local function cancel(id) return (withdraw(id, K_job, 'canceled', 1)) end

local answer = of_operation(A_operation, cancel)(A_id)
write_tallies()
write_operation(A_operation)
return answer
