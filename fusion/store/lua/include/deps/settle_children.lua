-- A parent has ended: its children wait for it no longer, or fail.
-- INCLUDE: keys kin undefer end_job states
-- RARE: settle_children settle_child fail_child

-- `how`: the outcome of the parent.
local function fail_child(id, key, queue, parent, how)
  fail_deferred(id, key, queue, 'fusion.exceptions.DependencyFailed', 'its parent ' .. parent .. ' was ' .. how)
end

-- One child of a parent that has ended. `met`: it finished; `gone`: there is no record of it any more.
local function settle_child(parent, id, score, met, gone, how)
  local key, children, unmet = job_key(id), children_key(parent), unmet_key(id)
  local status, queue = unpack(redis.call('HMGET', key, 'status', 'origin'))
  if not status or is_terminal(status) then return redis.call('ZREM', children, id) end
  if status == 'deferred' then
    if met then
      redis.call('SREM', unmet, parent, '?' .. parent, '~' .. parent)
    elseif not gone and redis.call('SISMEMBER', unmet, '~' .. parent) == 1 then
      return redis.call('ZADD', children, score + PARKED, id)
    elseif redis.call('SREM', unmet, '?' .. parent) == 0 and redis.call('SISMEMBER', unmet, parent) == 1
        or redis.call('SISMEMBER', unmet, '~' .. parent) == 1 then
      if redis.call('HGET', key, 'graph') then -- whose last job has not come: perhaps there never was any
        redis.call('HSET', key, 'doomed', parent .. ' ' .. how)
      else
        fail_child(id, key, queue, parent, how)
        return redis.call('ZREM', children, id)
      end
    end
    if redis.call('EXISTS', unmet) == 0 then undefer(id, key, queue) end
  end
  if gone then return redis.call('ZREM', children, id) end -- there is nothing to keep
  redis.call('ZADD', children, '+inf', id)
end

-- Up to `limit` of them; returns how many there were. One of a parent that runs again waits for its next end. Of a
-- parent that is gone all are struck off, those that had heard before, too. `met`: they wait
-- for it no longer, whatever it is.
local function settle_children(id, limit, met)
  local key, children = job_key(id), children_key(id)
  local status, reason, quarantined = unpack(redis.call('HMGET', key, 'status', 'reason', 'quarantined'))
  if status and not is_terminal(status) and not met then return 0 end
  local how = status or 'deleted'
  if status == 'canceled' and (reason == 'expired' or reason == 'discarded') then how = reason end
  if status == 'failed' and quarantined then how = 'quarantined' end
  met = met or status == 'finished'
  local upto = not status and '+inf' or met and '(+inf' or string.format('(%.17g', PARKED)
  local found = redis.call('ZRANGEBYSCORE', children, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do settle_child(id, found[i], tonumber(found[i + 1]), met, not status, how) end
  if redis.call('EXISTS', children) == 0 then unpin(id) end
  return #found / 2
end
