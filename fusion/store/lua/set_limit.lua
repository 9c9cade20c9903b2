-- set_limit: set what holds for a concurrency key from now on, whatever its jobs say, or take it back.
-- ARGV: key pause_ms n_pairs
-- INCLUDE: writer keys time limit
-- FLAGS: allow-oom
-- Rest: name value pairs; an empty value takes back
-- Returns: all fields of the key as they were before
-- `pause_ms`: for how long none of its jobs starts, -1 for no end; empty: nothing of that changes.
local key, gone, set = limit_key(A_key), {}, {}
local before = redis.call('HGETALL', key)
if A_pause_ms ~= '' then
  set[1], set[2], set[3], set[4] = 'paused', A_pause_ms == '-1' and 'inf' or string.format('%d', now_ms + A_pause_ms),
      'paused_since', now_iso
end
for i = REST, REST + A_n_pairs - 1, 2 do
  if ARGV[i + 1] == '' then gone[#gone + 1] = ARGV[i] else set[#set + 1], set[#set + 2] = ARGV[i], ARGV[i + 1] end
end
if set[1] then redis.call('HSET', key, unpack(set)) end
if gone[1] then redis.call('HDEL', key, unpack(gone)) end
redis.call('ZADD', LIMITS, 'NX', now_ms, A_key)
settle_key(A_key)
return before
