-- A job ends, whatever ended it: finished, failed, canceled, expired, corrupt, deleted. Its record is still there. What
-- it was tied to never fails an end: the audits find what is left.
-- Locks go last, as the job may be tied to nothing after that.
-- `status`: what it is from now on, `deleted` for a record that goes.
-- INCLUDE: ties limit unique batch kin
-- Uses: tied
local function on_end(id, key, queue, status)
  if tied[key] then
    if string.find(tied[key], 'k', 1, true) then pcall(leave_limit, id, key, status) end
    if tied[key] == 'k' then return end
    if string.find(tied[key], 'u', 1, true) then pcall(let_go, id, key, status) end
    if string.find(tied[key], 'b', 1, true) then pcall(leave_batches, id, key, queue, status) end
    if string.find(tied[key], '[pc]') then pcall(end_for_kin, id, key) end
    if tied[key] and string.find(tied[key], 'l', 1, true) then pcall(free_locks, id, key) end
  end
end
