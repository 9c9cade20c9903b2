-- Remove a job and every trace of it: the index first, so that nothing ever leads to a job that is gone.
-- INCLUDE: keys inbox ties kin on_end failures states
-- Uses: tied
-- `away`: a function that takes the record to where nothing leads to it; if it does not, the record goes for good.
local function forget(id, key, status, queue, away)
  local found = redis.call('ZREM', set_of(status, queue), id)
  if found == 0 and is_list(queue) and not is_elsewhere(status) then strike(queue, id) end
  if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
  if not is_terminal(status) then on_end(id, key, queue, 'deleted') end
  if status == 'failed' then pcall(leave_failure, id, key) end
  if tied[key] then forget_kin(id, key) end
  if away and away() then
    redis.call('UNLINK', dependents_key(id))
  else
    redis.call('UNLINK', key, dependents_key(id))
  end
end
