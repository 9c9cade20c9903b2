-- Looks whether what is open in batches is so, some batches and members at a time. What is found is counted: each is a
-- mistake of Fusion's, or somebody wrote there.
-- INCLUDE: keys batch releasing states
-- RARER: outcome_of audit_batch
local LOOKED_AT, MEMBERS = 50, 300 -- batches, and members of them all, a call

-- How an open member has ended; nil if it has not. Second: nothing if it is to be seen to by others.
local function outcome_of(batch, member)
  local inner = string.match(member, '^#(.+)')
  if inner then
    local created, over = unpack(redis.call('HMGET', batch_key(inner), 'created_at', 'over'))
    if not created then return 'deleted' end
    return over and (redis.call('EXISTS', batch_ended_key(inner)) == 1 and 'failed' or 'finished') or nil
  end
  local status, own = unpack(redis.call('HMGET', job_key(member), 'status', 'batch'))
  if not status or own ~= batch then return 'deleted' end
  return is_terminal(status) and status or nil
end

-- `share`: how many members.
local function audit_batch(batch, share)
  local found = 0
  for _, member in ipairs(redis.call('SRANDMEMBER', batch_open_key(batch), share)) do
    local outcome = outcome_of(batch, member)
    if outcome then
      leave_batch(batch, member, outcome)
      found = found + 1
    end
  end
  settle_around(batch)
  local ended, complete, succeeded, success = unpack(redis.call('HMGET', batch_key(batch), 'ended_at', 'on_complete',
    'success_at', 'on_success'))
  for _, id in ipairs({ ended and complete or '', succeeded and success or '' }) do
    if id ~= '' and redis.call('HGET', job_key(id), 'status') == 'deferred' then release_later(id) end
  end
  if found > 0 then redis.call('INCRBY', BATCHES_AUDIT, found) end
end

-- From a cursor on; returns the next.
local function audit_batches(cursor)
  local following, found = unpack(redis.call('ZSCAN', BATCHES, cursor, 'COUNT', LOOKED_AT))
  local share = math.max(1, math.floor(2 * MEMBERS / math.max(2, #found))) -- a small set comes as a whole
  for i = 1, #found, 2 do pcall(audit_batch, found[i], share) end
  return following
end
