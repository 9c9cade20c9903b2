-- What an operation on all that a query matches does to a job is compared and counted in the call that does it: so
-- that a carrier killed anywhere, a resend and two carriers at once leave each job changed and counted once.
-- - Only a running operation changes anything, and only jobs in one of its states that entered it before its cut-off:
--   what it put back itself, and failed again, is not taken twice.
-- - A job that is still there afterwards has the operation's id in its field `operation`, and is passed over from then
--   on. What has no mark of ours (another program's job) and what is no hash is noted in a set beside the record.
-- INCLUDE: keys states
-- RARER: in_time open_count count_operation of_operation write_operation entered_of add_count is_new_to
local MOST_SEEN = 10000 -- beyond that a job that can't be marked may be counted twice, if the walk meets it twice
local DONE = { ok = true, canceled = true, stopped = true, pending = true, deleted = true, kept = true }
local SKIPPED = { foreign = true, list = true, quarantined = true, unknown = true }
local COUNTED, LATE, OVER = 'counted', 'late', 'over' -- answers: by this operation before; after its cut-off; it ended
local cutoff, states, noted, examples -- of this call's operation; `noted`: what to add to its record

-- When a job entered its state, as its hash says (as `entered_at` of a query); nil if it does not.
local function entered_of(status, created, enqueued, started, ended)
  if is_terminal(status) then return ended end
  if status == 'started' then return started end
  local came = enqueued or created
  return ended and came and ended > came and ended or came
end

-- Whether a job is the operation's: in one of its states, and since before the cut-off.
local function in_time(status, entered)
  if not string.find(states, ' ' .. status .. ' ', 1, true) then return false end
  return not entered or entered <= cutoff
end

-- Read the record; false if the operation is over.
local function open_count(operation)
  local status
  status, cutoff, states = unpack(redis.call('HMGET', operation_key(operation), 'status', 'cutoff', 'states'))
  noted, examples, states = {}, {}, ' ' .. (states or '') .. ' '
  return status == 'running'
end

local function add_count(field) noted[field] = (noted[field] or 0) + 1 end

-- The outcome of a job.
local function count_operation(id, answer)
  local why = string.match(answer, '^%a+') or 'error'
  if DONE[answer] then
    add_count('done')
    if answer == 'kept' then add_count('kept') end
  else
    add_count(SKIPPED[answer] and 'skipped' or 'refused')
    add_count('why:' .. why)
    examples['example:' .. why] = id
  end
end

-- First told of a job that can't be marked.
local function is_new_to(operation, id)
  local key = operation_seen_key(operation)
  if redis.call('SADD', key, id) == 0 then return false end
  redis.call('PEXPIRE', key, 604800000)
  if redis.call('SCARD', key) > MOST_SEEN then redis.call('SREM', key, id) end
  return true
end

-- `call`, which does something to the job of an id and answers how that went, for an operation: the answer is `call`'s,
-- `counted`, `late`, `over`, `missing`, or the state it has instead.
local function of_operation(operation, call)
  if operation == '' then return call end
  if not open_count(operation) then return function() return OVER end end
  return function(id)
    local key = job_key(id)
    local row = redis.pcall('HMGET', key, 'status', 'operation', 'seq', 'created_at', 'enqueued_at', 'started_at',
        'ended_at')
    local status, mark, seq = row[1], row[2], row[3]
    if not row.err then
      if mark == operation then return COUNTED end
      if not status and redis.call('EXISTS', key) == 0 then return 'missing' end
      if status and is_elsewhere(status) or status == 'queued' then
        if not in_time(status, entered_of(status, row[4], row[5], row[6], row[7])) then
          return string.find(states, ' ' .. status .. ' ', 1, true) and LATE or status
        end
      else
        status = nil
      end
    end
    local answer
    if row.err or not status then
      answer = row.err and 'error: ' .. error_text(row) or 'unknown'
      if not is_new_to(operation, id) then return COUNTED end
    elseif seq then
      redis.call('HSET', key, 'operation', operation)
      local ok
      ok, answer = pcall(call, id)
      if not ok then
        local text = error_text(answer)
        if not string.find(text, '^-?WRONGTYPE') then
          redis.pcall('HDEL', key, 'operation')
          error(answer, 0)
        end
        answer = 'error: ' .. text
      end
    else -- an old producer's, which is ours, or another program's
      if not is_new_to(operation, id) then return COUNTED end
      local ok
      ok, answer = pcall(call, id)
      if not ok then
        redis.call('SREM', operation_seen_key(operation), id)
        error(answer, 0)
      end
    end
    if answer == 'missing' then return answer end
    count_operation(id, answer)
    return answer
  end
end

-- At the end of the call, whatever its answer.
local function write_operation(operation)
  if not noted then return end
  for field, n in pairs(noted) do redis.call('HINCRBY', operation_key(operation), field, n) end
  for field, id in pairs(examples) do redis.call('HSETNX', operation_key(operation), field, id) end
  noted = nil
end
