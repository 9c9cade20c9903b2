-- A job leaves its queue, or its execution, and is to arrive again: it waits for a time, or for its task. One
-- that waits to run alone keeps what it holds, as does one that keeps its key's slot for a worker that has its task.
-- INCLUDE: ties limit
-- Uses: tied
local function on_leave(id, key, queue)
  if tied[key] then pcall(leave_limit, id, key) end -- never fails what its job does: the audit finds what is left
end
