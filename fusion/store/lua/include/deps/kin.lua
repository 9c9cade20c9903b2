-- Parents and children. A child's hash names its parents in `parents`, a JSON list of their ids (what is over a
-- hundred in `:parents`, a hash of such lists by number); before an id stands what happens to the child should that
-- parent end otherwise than finished: `?` it counts as met, `~` the child waits until it is requeued and finishes,
-- without a sign the child fails. Those that are not met stand in `:dependencies` of the child, as they are written
-- there. `:children` of a parent holds those that have not ended: by the number of their arrival while they wait for
-- it, from PARKED on if they wait for it to be requeued, +inf once they don't. An ended parent that has some is pinned:
-- it is not forgotten, nor is its result (`pin`: when it was to be), and stands in `rq:pinned`. `:dependents` names its
-- children, those that have ended too, as many as a thousand: for people who look at the graph. A job with a `c` among
-- its ties has had children, one with a `p` has parents.
-- INCLUDE: keys time ties releasing states
-- OFTEN: pin_while_read is_parent
-- RARER: parent_in is_read_in_batch time_from_now unpin end_for_kin leave_parents leave_all
-- RARER: leave_more forget_kin keeps_result expire_later
-- Uses: tied
local PARKED = 2 ^ 44

-- The sign of such a list's member, and the id.
local function parent_in(member)
  local sign, id = string.match(member, '^([?~]?)(.*)$')
  return sign, id
end

local function is_parent(id, key)
  return string.find(tied[key], 'c', 1, true) and redis.call('EXISTS', children_key(id)) == 1
end

-- A job ends, or has ended, that others want to read of: not before the last of them has ended is it forgotten.
-- `expiry`: when it was to be, as text. Returns whether it is pinned.
local function pin_while_read(id, key, expiry)
  if not is_parent(id, key) then return false end
  redis.call('ZADD', P .. 'pinned', 'NX', now_ms, id)
  redis.call('HSET', key, 'pin', expiry)
  return true
end

-- Whether the result of a job is needed though it is not to be kept: its last child's end drops it.
local function keeps_result(id, key) return tied[key] and is_parent(id, key) end

-- Whether the jobs that a batch calls back may still want to read what its members returned.
local function is_read_in_batch(batch)
  local read, complete, success = unpack(redis.call('HMGET', batch_key(batch), 'read', 'on_complete', 'on_success'))
  return not read and (complete or success)
end

-- The net of an ended job, by its score in its set; not while its parents know it: its record alone tells which they
-- are.
local function expire_later(id, key, score)
  if tonumber(score) < math.huge and not redis.call('ZSCORE', P .. 'releasing', 'p ' .. id) then
    redis.call('PEXPIRE', key, string.format('%d', 1000 * (math.max(tonumber(score) - now_s, 0) + 3600)))
  end
end

-- The score of a finished job whose time begins now, by its own `result_ttl`; `func`: its record is of the second
-- layout. Nil if its time has no end.
local function time_from_now(ttl, func)
  local seconds = tonumber(ttl) or tonumber(func and STORED_RESULT_TTL or RESULT_TTL)
  if seconds < 0 then return nil end
  return string.format('%d.%06d', now_s + math.min(math.max(seconds, MIN_TTL), 1e9), math.max(1, now_us))
end

-- The last child of a job has ended: its time is that which was left, a minute at least; unless its batch keeps it. One
-- that its batch kept when it got its first child has had none of its time yet.
local function unpin(id)
  local key = job_key(id)
  local status, queue, pin, ttl, batch, func = unpack(redis.call('HMGET', key, 'status', 'origin', 'pin', 'result_ttl',
      'batch', 'func'))
  local kept = status == 'finished' and batch and is_read_in_batch(batch)
  if pin and is_terminal(status) and not kept then
    if pin == 'inf' and status == 'finished' then pin = time_from_now(ttl, func) or pin end
    local least = string.format('%d.%06d', now_s + MIN_TTL, math.max(1, now_us))
    if tonumber(pin) < tonumber(least) then pin = least end
    redis.call('ZADD', set_of(status, queue), 'XX', pin, id)
    expire_later(id, key, pin)
    if ttl == '0' then redis.call('HDEL', key, 'result') end
  end
  redis.call('HDEL', key, 'pin')
  redis.call('ZREM', P .. 'pinned', id)
end

-- A child has ended, or goes: nobody keeps these parents for its sake any more. Returns how many did.
local function leave_all(id, text)
  local ok, parents = pcall(cjson.decode, text or '[]')
  local left = 0
  for _, member in ipairs(ok and parents or {}) do
    local _, parent = parent_in(member)
    if redis.call('ZREM', children_key(parent), id) == 1 then
      left = left + 1
      if redis.call('EXISTS', children_key(parent)) == 0 then unpin(parent) end
    end
  end
  return left
end

-- Those that its record names; of one with more of them, `leave_more` goes on.
local function leave_parents(id, key)
  redis.call('UNLINK', unmet_key(id))
  return leave_all(id, redis.call('HGET', key, 'parents'))
end

-- The next hundred of a child's further parents; nil if there are none left. `gone`: so is the child's record.
local function leave_more(id, gone)
  local key = parents_key(id)
  local nth = tonumber(redis.call('HGET', key, 'left') or 0) + 1
  local text = redis.call('HGET', key, nth)
  if text then
    redis.call('HSET', key, 'left', nth)
    return leave_all(id, text) + 1
  end
  if gone then redis.call('DEL', key) else redis.call('HDEL', key, 'left') end
end

-- A job with parents or children ends.
local function end_for_kin(id, key)
  if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end
  if string.find(tied[key], 'p', 1, true) then do_later('p ' .. id) end
end

-- The record of a job with ties goes: nobody could tell its parents later.
local function forget_kin(id, key)
  if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end
  if string.find(tied[key], 'p', 1, true) then
    leave_parents(id, key)
    if redis.call('EXISTS', parents_key(id)) == 1 then do_later('p ' .. id) end
  end
end
