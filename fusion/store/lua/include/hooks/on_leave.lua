-- A job leaves its queue, or its execution, and is to arrive again: it waits for a time, for its task, or to run alone.
-- INCLUDE: ties limit
-- Uses: tied
local function on_leave(id, key, queue)
  if tied[key] then leave_limit(id, key) end
end
