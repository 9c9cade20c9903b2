-- A LIST queue's inbox is not searched: with many ids in it that holds up everybody. An id whose job goes is struck
-- instead: what stands in the inbox of it, as far as that reaches now, leads to no job and is passed over in silence
-- when its turn comes. Positions are counted from the time when the first was struck; the member '' tells how many ids
-- have left the inbox since. Once all that were struck have left, the key is gone.
-- INCLUDE: keys
-- RARER: strike passed is_struck move_back
local function strike(queue, id)
  local key, waiting = inbox_key(queue), redis.call('LLEN', queue_key(queue))
  if waiting == 0 then return end
  local left = redis.call('ZSCORE', key, '')
  if not left then redis.call('ZADD', key, 0, '') end
  redis.call('ZADD', key, (left or 0) + waiting, id)
  redis.call('ZREM', key, '>' .. id)
end

-- How many ids have left the inbox at its head.
local function passed(queue, count)
  local key = inbox_key(queue)
  local left = redis.call('ZSCORE', key, '')
  if not left then return end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', left + count)
  if redis.call('EXISTS', key) == 1 then redis.call('ZADD', key, left + count, '') end
end

-- Whether the id at this position, from 1, was struck: `struck`, or `again` if it was moved back meanwhile. `moved`:
-- it was not, but there is a second entry of it.
local function is_struck(queue, id, position)
  local key = inbox_key(queue)
  local left, upto = redis.call('ZSCORE', key, ''), redis.call('ZSCORE', key, id)
  local moved = redis.call('ZSCORE', key, '>' .. id)
  if upto and left + position <= tonumber(upto) then return moved and 'again' or 'struck' end
  return moved and 'moved'
end

-- An id was struck, and a job of that id waits: one enqueued since then, which stands further behind. Should other
-- programs have taken ids out, it is this very one: so it goes to the end, where it is the second of
-- that job, or the only one.
local function move_back(queue, id)
  local key = inbox_key(queue)
  local place = redis.call('ZSCORE', key, '') + redis.call('RPUSH', queue_key(queue), id)
  redis.call('ZADD', key, 'LT', place - 1, id)
  redis.call('ZADD', key, place, '>' .. id)
end
