-- A job leaves its queue, or its execution, and is to arrive again: it waits for a time, for its task, or to run alone.
local function on_leave(id, key, queue) end
