-- A doorbell holds one token at most; the token wakes one idle worker and never carries the job. Nothing rings for a
-- queue that is paused or closed by its gate, nor while all are suspended. Workers whose free slots are all reserved
-- for HIGH wait at a bell of their own: they would only waste the tokens of the others. Workers that serve a wildcard
-- wait at its bell, and find in its index which queues to look at. Whatever makes work claimable enters the queue
-- there; the turn that finds it empty, or paused, takes it out. The score is the best class that may wait there: too
-- high is mended by the turn that looks, too low never happens.
-- INCLUDE: keys score
-- RARE: wildcards_of wake push
-- Exports: wildcards
local wildcards
local woken -- by wildcard: what of its bells was rung

-- The wildcards that workers serve: none, mostly.
local function are_wildcards()
  if not wildcards then
    wildcards = redis.pcall('HGETALL', WILDCARDS)
    if wildcards.err then wildcards = {} end -- broken, or a user who may not read it: `survey` makes up for it
  end
  return wildcards[1]
end

-- Those of them that match the queue. Each is stored as `<last named, ms> <pattern of Lua>...`, see `ServedQueues`.
local function wildcards_of(queue)
  local found = {}
  if not are_wildcards() or queue == 'failed' or string.sub(queue, 1, 1) == '_' then return found end
  for i = 1, #wildcards, 2 do
    local at = 1
    for piece in string.gmatch(wildcards[i + 1], ' (%S+)') do
      local ok, first, last = pcall(string.find, queue, piece, at)
      at = ok and first and last + 1
      if not at then break end
    end
    if at then found[#found + 1] = wildcards[i] end
  end
  return found
end

-- Further arguments: keys that silence it.
local function push(bell, ...)
  if redis.call('EXISTS', bell, SUSPENDED, ...) == 0 then redis.call('RPUSH', bell, '1') end
end

-- Wakes a worker that serves the wildcard: of its queues one that is not paused has work of this class.
local function wake(wildcard, class)
  woken = woken or {}
  if not woken[wildcard] then push(wake_key(wildcard)) end
  if class >= 2 and woken[wildcard] ~= 'high' then push(wake_high_key(wildcard)) end
  woken[wildcard] = class >= 2 and 'high' or woken[wildcard] or 'any'
end

-- `class`: the best that waits, where the caller knows it. `known`: it is in the index, and open.
local function ring(queue, class, known)
  local bell, paused, closed = wake_key(queue), paused_key(queue), closed_key(queue)
  if redis.call('EXISTS', bell, SUSPENDED, paused, closed) == 0 then redis.call('RPUSH', bell, '1') end
  local any = are_wildcards()
  local matching = any and wildcards_of(queue)
  if matching and matching[1] then
    class = class or class_of(redis.pcall('ZREVRANGE', ready_key(queue), 0, 0, 'WITHSCORES')[2])
    local stopped = not known and redis.call('EXISTS', SUSPENDED, paused, closed) > 0
    for _, wildcard in ipairs(matching) do
      if not known then redis.pcall('ZADD', work_key(wildcard), 'GT', class, queue) end
      if not stopped then wake(wildcard, class) end
    end
  end
  if class and class < 2 then return end
  local high = wake_high_key(queue)
  if redis.call('EXISTS', high, SUSPENDED, paused, closed) > 0 then return end
  local waiting = class and not is_list(queue) and 1 or redis.pcall('ZCOUNT', ready_key(queue), '2', '+inf')
  if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
