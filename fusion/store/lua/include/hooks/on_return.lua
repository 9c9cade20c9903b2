-- An execution ends and its job keeps its place, and whatever else it holds: released, lost (over its pause too), or
-- tried again at once.
local function on_return(id, key, queue) end
