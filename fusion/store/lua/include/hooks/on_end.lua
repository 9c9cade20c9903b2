-- A job ends, whatever ended it: finished, failed, canceled, expired, corrupt, deleted. Its record is still there.
local function on_end(id, key, queue) end
