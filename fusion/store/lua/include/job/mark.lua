-- Whose a record is. Each job of ours has an arrival number from the start, empty while it has no place; a record made
-- for a corrupt entry has `raw_id`. What has neither is another program's, stock RQ's say, and is not touched.
-- INCLUDE: keys states

-- Whether a job waits in its queue, whatever its status: an old producer may have written any.
local function waits(id, queue)
  if tonumber(redis.pcall('ZSCORE', ready_key(queue), id)) then return true end
  return is_list(queue) and type(redis.pcall('LPOS', queue_key(queue), id)) == 'number'
end

-- The fields that stock RQ has written since 1.9, and nobody else.
local function is_rqs(key) return redis.call('HEXISTS', key, 'success_callback_name') == 1 end

-- Of a record without an arrival number. An old producer's is ours all the same: it waits in a ZSET or in the inbox,
-- or has failed, and it may name no queue, which RQ's always do.
local function is_ours(id, key, queue, status)
  if redis.call('HEXISTS', key, 'raw_id') == 1 then return true end
  if is_list(queue) and not is_elsewhere(status) then return true end -- not searched for: an inbox may be long
  if is_rqs(key) then return false end
  return queue == '' and not is_elsewhere(status) or waits(id, queue) or tonumber(redis.pcall('ZSCORE', FAILED,
      id)) ~= nil
end
