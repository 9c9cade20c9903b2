-- An execution ends and its job keeps its place, and whatever else it holds: released, lost (over its pause too), or
-- tried again at once.
-- INCLUDE: ties limit
-- Uses: tied
local function on_return(id, key, queue)
  if tied[key] then return_to_limit(id, key, queue) end
end
