-- Remove a job and every trace of it: the index first, so that nothing ever leads to a job that is gone.
local function forget(id, key, status, queue)
  redis.call('ZREM', set_of(status, queue), id)
  if is_list(queue) then redis.call('LREM', queue_key(queue), 0, id) end
  if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
  redis.call('DEL', key, dependents_key(id))
end
