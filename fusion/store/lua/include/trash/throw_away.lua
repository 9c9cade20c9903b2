-- A job that a person deletes goes: into the trash if the caller says so and there is room, else for good.
-- INCLUDE: keys ties trash forget failure_keys states
-- Uses: tied
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
