-- A job enters a queue by whatever way but a return: enqueued, due, requeued, taken over from another program, or back
-- from the sets of blocked jobs. One that was lost and waited for its next try may arrive though it never left.
local function on_arrive(id, key, queue) end
