-- survey: a worker names the wildcards it serves, and their queues that have work enter the index, a bounded number of
--   names at a time.
-- KEYS: queues survey wildcards
-- ARGV: interval_ms limit n_wildcards
-- FLAGS: allow-oom
-- INCLUDE: keys time score ring
-- Rest: per wildcard: as it was named, and as patterns of Lua
-- Returns: 1 if there are more names to look at, else 0
-- The index is kept by whatever makes work claimable, so that a pass finds nothing to do; but for a new wildcard, for
-- what older versions and RQ enqueue, for pauses that end by themselves. However many call it: one pass an interval,
-- each call goes on where the last one stopped.
local FORGET_MS = 3600000 -- nothing has named it for this time

local fresh
for i = REST, REST + 2 * A_n_wildcards - 1, 2 do
  fresh = redis.call('HSET', K_wildcards, ARGV[i], now_ms .. ARGV[i + 1]) == 1 or fresh
end
local named = redis.call('HGETALL', K_wildcards)
for i = 1, #named, 2 do
  local age = now_ms - (tonumber(string.match(named[i + 1], '^%d+')) or 0)
  if age > FORGET_MS then
    redis.call('HDEL', K_wildcards, named[i])
    redis.call('DEL', work_key(named[i]), wake_key(named[i]), wake_high_key(named[i]))
  elseif age < 0 then -- the clock was set back
    redis.call('HSET', K_wildcards, named[i], now_ms .. string.match(named[i + 1], '^%d+(.*)'))
  end
end

local cursor, began = unpack(redis.call('HMGET', K_survey, 'cursor', 'began'))
if fresh or not cursor or cursor == '0' then
  local age = now_ms - (tonumber(began) or 0)
  if not fresh and age >= 0 and age < tonumber(A_interval_ms) then return 0 end
  cursor, began = '0', now_ms
end

local keys
cursor, keys = unpack(redis.call('SSCAN', K_queues, cursor, 'COUNT', A_limit))
redis.call('HSET', K_survey, 'cursor', cursor, 'began', began)
for _, key in ipairs(keys) do
  local queue = queue_name(key)
  local head = redis.pcall('ZREVRANGE', ready_key(queue), 0, 0, 'WITHSCORES')[2]
  local class = head and class_of(head) or is_list(queue) and redis.pcall('EXISTS', key) == 1 and 1
  if class then
    local missing
    for _, wildcard in ipairs(wildcards_of(queue)) do
      local known = redis.pcall('ZSCORE', work_key(wildcard), queue)
      missing = missing or (tonumber(known) or -1) < class
    end
    if missing and redis.call('EXISTS', paused_key(queue), closed_key(queue)) == 0 then ring(queue, class) end
  end
end
return cursor == '0' and 0 or 1
