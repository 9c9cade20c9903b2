-- A job enters a queue by whatever way but a return: enqueued, due, requeued, taken over from another program, or back
-- from the sets of blocked jobs, if only to wait for its key. One that was lost and waited for its next try may arrive
-- though it never left, as may one that kept what it holds in those sets.
-- `named`: an enqueue brought it into being. True if it is blocked: it does not stand in the queue.
-- INCLUDE: ties limit
-- Uses: tied
local function on_arrive(id, key, queue, named)
  if tied[key] then return arrive_at_limit(id, key, queue, named) end
end
