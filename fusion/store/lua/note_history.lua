-- note_history: what a worker saw of jobs since it last said so: counts, how long they waited and ran, and the most of
--   a run.
-- KEYS: worker queues functions keyless
-- ARGV: number most n_series
-- FLAGS: allow-oom
-- INCLUDE: time series
-- Rest: per series: `queue` or `function`, name, n, then n times: minutes ago, field, count (for `slowest` and `peak` a
--   figure, of which an hour keeps the most); or `keyless`, a function, 1, 0, an empty text, and how many of its jobs
--   came without the concurrency key that its `@job` declares
-- Returns: 1
-- The worker's hash keeps the number of the last call, so a resend counts nothing. More names than `most` are one
-- together; one that nobody used for a month makes room.
local DAY_MS = 86400000
if (tonumber(redis.call('HGET', K_worker, 'history')) or 0) >= tonumber(A_number) then return 1 end
if redis.call('EXISTS', K_worker) == 1 then redis.call('HSET', K_worker, 'history', A_number) end

-- One field of one tier.
local touched = {}
local function add(tier, scope, name, step, field, count)
  local key, place = series_key(tier, scope, name, step)
  redis.call('HINCRBY', key, place .. ':' .. field, count)
  touched[key] = tier[3]
end

-- A figure of which an hour keeps the most.
local MOST = { slowest = true, peak = true }
local function keep(scope, name, hour, field, figure)
  local key, place = series_key(SERIES_TIERS[2], scope, name, hour)
  local before = tonumber(redis.call('HGET', key, place .. ':' .. field) or '') or -1
  if tonumber(figure) > before then redis.call('HSET', key, place .. ':' .. field, figure) end
  touched[key] = SERIES_TIERS[2][3]
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
    name = series_name(scope == 'queue' and K_queues or K_functions, name, A_most)
  end
  for i = at + 3, at + 3 * n, 3 do
    local minute = (now_s - now_s % 60) / 60 - ARGV[i]
    local hour = (minute - minute % 60) / 60
    if MOST[ARGV[i + 1]] then
      keep(scope, name, hour, ARGV[i + 1], ARGV[i + 2])
    else
      add(SERIES_TIERS[1], scope, name, minute, ARGV[i + 1], ARGV[i + 2])
      add(SERIES_TIERS[2], scope, name, hour, ARGV[i + 1], ARGV[i + 2])
    end
  end
  at = at + 3 + 3 * tonumber(ARGV[at + 2])
end
for key, kept in pairs(touched) do redis.call('EXPIRE', key, kept) end
return 1
