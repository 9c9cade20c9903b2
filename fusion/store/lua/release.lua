-- release: what ends and other changes of jobs have left to be done for those that are bound to them, a bounded number
--   of jobs at a time.
-- KEYS: releasing
-- ARGV: limit
-- FLAGS: allow-oom
-- INCLUDE: time count emit undefer release_some
-- Returns: {jobs that changed, ms to what is left or -1}
-- A process that learns that there is something calls it until nothing is left.
local done = release_some(tonumber(A_limit))
write_tallies()
ring_released()
give_back_numbers()
local first = redis.call('ZRANGE', K_releasing, 0, 0, 'WITHSCORES')
return { done, first[1] and math.max(0, math.ceil(tonumber(first[2]) - now_ms)) or -1 }
