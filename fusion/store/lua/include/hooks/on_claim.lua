-- A worker takes a job: an execution of it begins.
local function on_claim(id, key, queue) end
