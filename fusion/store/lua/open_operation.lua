-- open_operation: an operation on all that a query matches comes into being. Whoever carries it on changes the jobs.
-- KEYS: operation operations
-- ARGV: id most_running most_ended keep_ms n_pairs
-- INCLUDE: writer time keys
-- Rest: its fields
-- Returns: {'ok', its cut-off: what enters a state after that is left alone} | {'full', how many run}
-- The cut-off is the server's clock, which also says when jobs entered their states. A resend answers as the first
-- time.
local known = redis.call('HGET', K_operation, 'cutoff')
if known then return { 'ok', known } end
local running = redis.call('ZCOUNT', K_operations, '+inf', '+inf')
if running >= tonumber(A_most_running) then return { 'full', running } end

local function forget(ids)
  for _, id in ipairs(ids) do
    redis.call('UNLINK', operation_key(id), operation_seen_key(id))
    redis.call('ZREM', K_operations, id)
  end
end
-- ended ones have the lower scores: the oldest go, a few at a time
forget(redis.call('ZRANGEBYSCORE', K_operations, '-inf', now_ms - tonumber(A_keep_ms), 'LIMIT', 0, 20))
local over = redis.call('ZCARD', K_operations) - running - tonumber(A_most_ended)
if over > 0 then forget(redis.call('ZRANGE', K_operations, 0, math.min(over, 20) - 1)) end

redis.call('HSET', K_operation, 'status', 'running', 'cutoff', now_iso, 'part', 0, 'place', '', 'cursor', '0',
  unpack(ARGV, REST, REST + tonumber(A_n_pairs) - 1))
redis.call('ZADD', K_operations, '+inf', A_id)
return { 'ok', now_iso }
