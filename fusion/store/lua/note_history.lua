-- note_history: what a worker saw of jobs since it last said so: counts, and how long they waited and ran.
-- KEYS: worker queues functions keyless
-- ARGV: number most n_series
-- FLAGS: allow-oom
-- INCLUDE: time
-- Rest: per series: `queue` or `function`, name, n, then n times: minutes ago, field, count; or `keyless`, a function,
--   1, 0, an empty text, and how many of its jobs came without the concurrency key that its `@job` declares
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

-- Functions that had none for a day go: whoever enqueued so has been mended.
local function note_keyless(name, count)
  local all, known = redis.call('HGETALL', K_keyless), 0
  for i = 1, #all, 2 do
    local old = now_ms - (tonumber(string.match(all[i + 1], '(%d+)$')) or 0) > DAY_MS
    if old then redis.call('HDEL', K_keyless, all[i]) else known = known + 1 end
  end
  local before = redis.call('HGET', K_keyless, name)
  if not before and known >= tonumber(A_most) then
    name = OTHER
    before = redis.call('HGET', K_keyless, name)
  end
  local sum = (tonumber(string.match(before or '', '^%d+')) or 0) + count
  redis.call('HSET', K_keyless, name, string.format('%d %d', sum, now_ms))
  redis.call('PEXPIRE', K_keyless, DAY_MS)
end

local at = REST
for _ = 1, tonumber(A_n_series) do
  local scope, name, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if scope == 'keyless' then
    note_keyless(name, ARGV[at + 5])
    n = 0
  else
    name = own(scope == 'queue' and K_queues or K_functions, name)
  end
  for i = at + 3, at + 3 * n, 3 do
    local minute = (now_s - now_s % 60) / 60 - ARGV[i]
    add('minute', scope, name, minute, 60, ARGV[i + 1], ARGV[i + 2], MINUTE_KEPT)
    add('hour', scope, name, (minute - minute % 60) / 60, 24, ARGV[i + 1], ARGV[i + 2], HOUR_KEPT)
  end
  at = at + 3 + 3 * tonumber(ARGV[at + 2])
end
for key, kept in pairs(touched) do redis.call('EXPIRE', key, kept) end
return 1
