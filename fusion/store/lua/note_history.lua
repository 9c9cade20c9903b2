-- note_history: what a worker saw of jobs since it last said so: counts, and how long they waited and ran.
-- KEYS: worker queues functions
-- ARGV: number most n_series
-- FLAGS: allow-oom
-- INCLUDE: time
-- Rest: per series: `queue` or `function`, name, n, then n times: minutes ago, field, count
-- Returns: 1
-- The worker's hash keeps the number of the last call, so a resend counts nothing. More names than `most` are one
-- together; one that nobody used for a month makes room.
local DAY_MS, MINUTE_KEPT, HOUR_KEPT, OTHER = 86400000, 25 * 3600, 31 * 86400, '(other)'
if (tonumber(redis.call('HGET', K_worker, 'history')) or 0) >= tonumber(A_number) then return 1 end
if redis.call('EXISTS', K_worker) == 1 then redis.call('HSET', K_worker, 'history', A_number) end

local function own(known_names, name)
  if name == OTHER then return name end
  local known = redis.call('ZSCORE', known_names, name)
  if not known and redis.call('ZCARD', known_names) >= tonumber(A_most) then
    redis.call('ZREMRANGEBYSCORE', known_names, '-inf', now_ms - 30 * DAY_MS)
    if redis.call('ZCARD', known_names) >= tonumber(A_most) then return OTHER end
  end
  if not known or now_ms - known > DAY_MS / 24 then redis.call('ZADD', known_names, now_ms, name) end
  return name
end

-- One field of one tier.
local touched = {}
local function add(tier, scope, name, step, steps, field, count, kept)
  local number = string.format('%d', (step - step % steps) / steps)
  local key = P .. 'history:' .. tier .. ':' .. scope .. ':' .. name .. ':' .. number
  redis.call('HINCRBY', key, string.format('%d', step % steps) .. ':' .. field, count)
  touched[key] = kept
end

local at = REST
for _ = 1, tonumber(A_n_series) do
  local scope, n = ARGV[at], tonumber(ARGV[at + 2])
  local name = own(scope == 'queue' and K_queues or K_functions, ARGV[at + 1])
  at = at + 3
  for _ = 1, n do
    local minute = (now_s - now_s % 60) / 60 - ARGV[at]
    add('minute', scope, name, minute, 60, ARGV[at + 1], ARGV[at + 2], MINUTE_KEPT)
    add('hour', scope, name, (minute - minute % 60) / 60, 24, ARGV[at + 1], ARGV[at + 2], HOUR_KEPT)
    at = at + 3
  end
end
for key, kept in pairs(touched) do redis.call('EXPIRE', key, kept) end
return 1
