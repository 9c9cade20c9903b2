-- Remove a job and every trace of it: the index first, so that nothing ever leads to a job that is gone.
-- INCLUDE: keys inbox ties kin on_end failures states trash lines
-- Uses: tied
-- `away`: a function that takes the record to where nothing leads to it; if it does not, the record goes for good.
local function forget(id, key, status, queue, away)
  local found = redis.call('ZREM', set_of(status, queue), id)
  if found == 0 and is_list(queue) and not is_elsewhere(status) then strike(queue, id) end
  if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
  if not is_terminal(status) then on_end(id, key, queue, 'deleted') end
  if status == 'failed' then pcall(leave_failure, id, key) end
  if tied[key] then forget_kin(id, key) end
  if redis.pcall('EXISTS', LOGS) == 1 then drop_log(id) end -- who only enqueues has no right to look, and no logs
  if away and away() then
    redis.call('UNLINK', dependents_key(id))
  else
    redis.call('UNLINK', key, dependents_key(id))
  end
end

-- A job that a person deletes goes: into the trash if the caller wants that and there is room, else for good.
-- `keep`: '1' for the trash. Its indexes are to be left as they are until then.
local function throw_away(id, key, status, queue, keep)
  local score, failed_ms
  if keep == '1' and (is_terminal(status) or status == 'scheduled') then
    score = tied[key] and redis.call('HGET', key, 'pin') or redis.call('ZSCORE', set_of(status, queue), id)
    local group = status == 'failed' and redis.call('HGET', key, 'failure_group')
    failed_ms = group and redis.pcall('ZSCORE', failure_jobs_key(group), id)
    if type(failed_ms) ~= 'string' then failed_ms = nil end
  end
  local kept
  forget(id, key, status, queue, function()
    if keep ~= '1' then return false end
    local ok, done = pcall(put_into_trash, id, key, queue, status == 'deferred', score, failed_ms)
    kept = ok and done
    return kept
  end)
  return kept
end
