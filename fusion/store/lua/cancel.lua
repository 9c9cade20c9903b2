-- cancel: a waiting job will not run; a running one will not run again.
-- KEYS: job
-- ARGV: id operation dependents
-- INCLUDE: count withdraw count_operation releasing
-- FLAGS: allow-oom
-- Returns: canceled | pending (it runs now and ends canceled unless this run finishes or fails) | missing | its
--   terminal status, or one that only a newer version knows | foreign (another program's job)
--   | of an operation also: see count_operation
-- Events: canceled
-- `dependents`: 1 = its children wait for it no longer.
local function cancel(id)
  local answer = withdraw(id, K_job, 'canceled', 1)
  if A_dependents == '1' and (answer == 'canceled' or answer == 'pending') then do_later('b ' .. id) end
  return answer
end

local answer = of_operation(A_operation, cancel)(A_id)
write_tallies()
write_operation(A_operation)
return answer
