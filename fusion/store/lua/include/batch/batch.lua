-- Batches: jobs that belong together. A batch has a hash; all its members in the order in which they came; a set of
-- those that have not ended, `open`, which is why nothing is counted twice, whatever is resent; and a hash of how those
-- ended that did not finish. A batch that is a member of another stands there as `#<id>`.
-- It is over when it takes no more members of producers (`closed`) and none is open. That may end again: a member is
-- requeued, and the batches around it are not over either. What follows from its end follows once: from the first one
-- (`ended_at`) its job `on_complete`, and from the first at which all members had finished (`success_at`) `on_success`.
-- These are deferred until then. As they want to read what members returned, those that finish are kept until both
-- have ended (`read`).
-- INCLUDE: keys time releasing
-- RARER: refuses_more set_due settle_batch open_member enter_batch enter_again join_batch leave_batch settle_around
-- RARER: let_read_end end_callback leave_batches

-- Why it takes no more, in a word; nil if it does. One that is closed still takes what its own open members bring
-- (`by`: the job that asks): it can't end before they do. What is of a wrong type shows here, before anything changes.
-- `as`: of a job `id` that is to be called back, `complete` or `success`; it is refused if it is not what was promised:
-- who opened the batch since promised another, or none.
local function refuses_more(batch, by, as, id)
  local created, closed, canceled = unpack(redis.call('HMGET', batch_key(batch), 'created_at', 'closed_at',
    'canceled_at'))
  redis.call('ZCARD', batch_members_key(batch))
  redis.call('HGET', batch_ended_key(batch), '')
  local own = redis.call('SISMEMBER', batch_open_key(batch), by or '') == 1
  if not created then return 'missing' end
  if as then return redis.call('HGET', batch_key(batch), 'on_' .. as) ~= id and 'taken' or nil end
  if canceled then return 'canceled' end
  return closed and not own and 'closed' or nil
end

-- When something is to be done with the batch without being asked; what was due is over.
local function set_due(batch)
  local cancel, read, over, forget, closed, open_until = unpack(redis.call('HMGET', batch_key(batch), 'cancel', 'read',
    'over', 'forget_ms', 'closed_at', 'open_until'))
  local due = (cancel or read and read ~= 'end') and now_ms or over and forget or not closed and open_until
  if due then redis.call('ZADD', BATCHES_DUE, due, batch) else redis.call('ZREM', BATCHES_DUE, batch) end
end

-- Looks whether it is over, and what follows from that. If it is now: the batch that it is a member of, if there is
-- one, and how it ended.
local function settle_batch(batch)
  local key = batch_key(batch)
  if redis.call('EXISTS', batch_open_key(batch)) == 1 then return end
  local closed, over, ended, succeeded, parent, keep, complete, success = unpack(redis.call('HMGET', key, 'closed_at',
    'over', 'ended_at', 'success_at', 'parent', 'keep_ms', 'on_complete', 'on_success'))
  if not closed or over then return end
  local whole = redis.call('EXISTS', batch_ended_key(batch)) == 0
  redis.call('HSET', key, 'over', 1)
  if not ended then
    redis.call('HSET', key, 'ended_at', now_iso)
    if complete then release_later(complete) end
  end
  if whole and not succeeded then
    redis.call('HSET', key, 'success_at', now_iso)
    if success then release_later(success) end
  end
  redis.call('HSET', key, 'forget_ms', now_ms + (tonumber(keep) or 0))
  set_due(batch)
  return parent, whole and 'finished' or 'failed'
end

-- A member is open; how it ended in an earlier life counts no more.
local function open_member(batch, member)
  if redis.call('SADD', batch_open_key(batch), member) == 0 then return end
  local members = batch_members_key(batch)
  if redis.call('ZADD', members, 'NX', redis.call('ZCARD', members) + 1, member) == 1 then return end
  local was = redis.call('HGET', batch_ended_key(batch), member)
  if was then
    redis.call('HDEL', batch_ended_key(batch), member)
    redis.call('HINCRBY', batch_key(batch), was, -1)
  end
end

-- A member comes in, or comes back: it is to run again. The batch is not over then, nor are those around it.
local function enter_batch(batch, member)
  local key = batch_key(batch)
  local created, over, parent = unpack(redis.call('HMGET', key, 'created_at', 'over', 'parent'))
  if not created then return end
  open_member(batch, member)
  if over then
    redis.call('HDEL', key, 'over', 'forget_ms')
    set_due(batch)
    if parent then enter_batch(parent, '#' .. batch) end
  end
end

-- An ended job is to run again. What a batch calls back is none of its members.
local function enter_again(id, key)
  local batch, as = unpack(redis.call('HMGET', key, 'batch', 'batch_as'))
  if batch and not as then enter_batch(batch, id) end
end

local joined = {} -- batches that members have joined in this call

-- A new member, and the batch's producer is alive; or, with `as`, a job that is to be called back: it is deferred.
local function join_batch(batch, member, as)
  if as then
    local told = redis.call('HGET', batch_key(batch), as == 'complete' and 'ended_at' or 'success_at')
    return told and release_later(member)
  end
  if joined[batch] then return open_member(batch, member) end
  joined[batch] = true
  enter_batch(batch, member)
  local closed, wait = unpack(redis.call('HMGET', batch_key(batch), 'closed_at', 'open_ms'))
  if closed then return end
  redis.call('HSET', batch_key(batch), 'open_until', now_ms + (tonumber(wait) or 0))
  set_due(batch)
end

-- A member has ended: finished, failed, canceled, stopped or deleted. So may the batches around it have.
local function leave_batch(batch, member, outcome)
  while batch and redis.call('SISMEMBER', batch_open_key(batch), member) == 1 do
    if outcome ~= 'finished' then -- first of all: a member that is not open and not there has finished
      redis.call('HSET', batch_ended_key(batch), member, outcome)
      redis.call('HINCRBY', batch_key(batch), outcome, 1)
    end
    redis.call('SREM', batch_open_key(batch), member)
    local around, how = settle_batch(batch)
    batch, member, outcome = around, '#' .. batch, how
  end
end

-- As `settle_batch`, and the batches around it.
local function settle_around(batch)
  local around, how = settle_batch(batch)
  if around then leave_batch(around, '#' .. batch, how) end
end

-- Nobody wants to read any more what members returned: their times begin, some members at a time.
local function let_read_end(batch)
  if redis.call('HSETNX', batch_key(batch), 'read', 0) == 1 then set_due(batch) end
end

-- A job that was called back has ended: one that failed may be put back. One that was given up never came (`graph`),
-- nor is it the batch's after another took its place.
local function end_callback(batch, as, status, id, graph)
  if status == 'failed' then return end
  local key = batch_key(batch)
  if graph or redis.call('HGET', key, 'on_' .. as) ~= id then return end
  local created, complete, success = unpack(redis.call('HMGET', key, 'created_at', 'on_complete', 'on_success'))
  if not created then return end
  redis.call('HSET', key, as .. '_called', 1)
  local called = redis.call('HMGET', key, 'complete_called', 'success_called')
  if (not complete or called[1]) and (not success or called[2]) then let_read_end(batch) end
end

-- A job of a batch ends, `status`.
local function leave_batches(id, key, queue, status)
  local batch, as, graph = unpack(redis.call('HMGET', key, 'batch', 'batch_as', 'graph'))
  if as then return end_callback(batch, as, status, id, graph) end
  if not batch then return end
  leave_batch(batch, id, status)
  if status ~= 'finished' then return end
  local read, complete, success = unpack(redis.call('HMGET', batch_key(batch), 'read', 'on_complete', 'on_success'))
  if not read and (complete or success) then
    redis.call('ZADD', set_of('finished', queue), '+inf', id)
    redis.call('PERSIST', key)
  end
end
