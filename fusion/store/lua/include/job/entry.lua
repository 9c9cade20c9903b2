-- The job of a tick, or of a run by hand: made of the entry's fields as the caller read them (`rev` says that they
-- still are those).
-- INCLUDE: keys cron_keys time states

-- Whether this job has not ended: then an entry that must not overlap waits for its next tick.
local function is_live(id)
  local status = id and id ~= '' and redis.pcall('HGET', job_key(id), 'status')
  return type(status) == 'string' and not is_terminal(status)
end

-- Never fails the decision it reports.
local function note_decision(entry, tick, outcome, what)
  local history = cron_history_key(entry)
  redis.pcall('RPUSH', history, string.format('%d %s %d %s', tick, outcome, now_ms, what))
  redis.pcall('LTRIM', history, -50, -1)
end
