-- RARE: cut note_attempt
-- Take a field that is none of the hash's out of a list of them; its value, nil if it is not there.
local function cut(fields, name)
  for i = #fields - 1, 1, -2 do
    if fields[i] == name then
      table.remove(fields, i)
      return table.remove(fields, i)
    end
  end
end

-- Executions that ended without finishing, a JSON line each, the last 10 of them: what a person wants to know of a job
-- that fails. Only the way of failures comes here. `more`, fields for the job's hash, gets the field `history`; the
-- worker's pair `attempt` in it, a JSON object of what it knows besides (signal, exit_code, maxrss, oom), goes into
-- the line.
local function note_attempt(key, worker, outcome, error, more, started, ended)
  local found, entry = redis.call('HMGET', key, 'history', 'started_at'), {}
  local ok, known = pcall(cjson.decode, cut(more, 'attempt'))
  if ok and type(known) == 'table' then entry = known end
  entry.start, entry['end'] = started or found[2] or nil, ended
  entry.worker, entry.outcome, entry.error = worker or nil, outcome, string.sub(error or '', 1, 1024)
  local lines = {}
  for line in string.gmatch(found[1] or '', '[^\n]+') do lines[#lines + 1] = line end
  lines[#lines + 1] = cjson.encode(entry)
  more[#more + 1] = 'history'
  more[#more + 1] = table.concat(lines, '\n', math.max(1, #lines - 9))
end
