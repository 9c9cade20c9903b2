-- A worker takes a job: an execution of it begins.
-- INCLUDE: ties unique
-- Uses: tied
local function on_claim(id, key, queue)
  if tied[key] then
    if string.find(tied[key], 'u', 1, true) then pcall(let_go, id, key, 'started') end
  end
end
