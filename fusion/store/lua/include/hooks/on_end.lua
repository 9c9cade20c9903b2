-- A job ends, whatever ended it: finished, failed, canceled, expired, corrupt, deleted. Its record is still there.
-- INCLUDE: ties limit
-- Uses: tied
local function on_end(id, key, queue)
  if tied[key] then pcall(leave_limit, id, key) end -- never fails an end: the audit finds what is left
end
