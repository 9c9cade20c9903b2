-- Whether a job waits in its queue, whatever its status: an old producer may have written any.
-- INCLUDE: keys
local function waits(id, queue)
  if tonumber(redis.pcall('ZSCORE', ready_key(queue), id)) then return true end
  return is_list(queue) and type(redis.pcall('LPOS', queue_key(queue), id)) == 'number'
end
