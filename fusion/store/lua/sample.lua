-- sample: write down how many jobs wait in each queue, by class, for how long the oldest of each has, how many came
--   and went in the last minute, and what metrics show beside that; a bounded number of queues at a time.
-- KEYS: queues sample names
-- ARGV: interval_ms limit most duties
-- FLAGS: allow-oom
-- INCLUDE: keys time series tell
-- Returns: 1 if there are more queues to look at, else 0
-- On the axis of the history of waits: a figure that only ended jobs make falls silent when a queue is stuck. Of a step
-- the most that was seen is kept, so a resend changes nothing. However many call it: one pass an interval, each call
-- goes on where the last one stopped. What is empty, or has no name of its own in the history, leaves no trace.
local CLASSES = { { '0', '(1' }, { '1', '(2' }, { '2', '+inf' } } -- LOW, MODERATE, and HIGH with all above it

-- Unix seconds of a stored time (civil date to days: the inverse of what `iso` does).
local function seconds_of(text)
  local y, m, d, hours, minutes, seconds = string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)')
  if not y then return nil end
  y, m = m + 0 <= 2 and y - 1 or y + 0, tonumber(m)
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (m + (m > 2 and -3 or 9)) + 2) / 5) + d - 1
  local days = era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy - 719468
  return days * 86400 + hours * 3600 + minutes * 60 + seconds
end

-- Depth and age of the oldest of each class, and whether anything waits; nil if a key is broken.
local function look(queue, key)
  local ready, figures, any = ready_key(queue), {}, false
  for class, range in ipairs(CLASSES) do
    local depth, age = redis.pcall('ZCOUNT', ready, range[1], range[2]), 0
    if type(depth) ~= 'number' then return nil end
    local inbox = class == 2 and is_list(queue) and redis.pcall('LLEN', key)
    if type(inbox) == 'number' then depth = depth + inbox end
    if depth > 0 then
      any = true
      local head = redis.pcall('ZREVRANGEBYSCORE', ready, range[2], range[1], 'LIMIT', 0, 1)
      local came = head[1] and redis.pcall('HMGET', job_key(head[1]), 'enqueued_at', 'created_at') or {}
      local since = seconds_of(came[1] or came[2])
      if since then age = math.max(0, now_s - since) end
    end
    figures[class * 2 - 1], figures[class * 2] = depth, age
  end
  return figures, any
end

-- How many jobs of a queue run, are blocked or deferred, and how many that ended are kept; then 1 if it is paused.
-- Leases below this number of ms are stock RQ's, in seconds.
local SETS = { 'blocked:', 'deferred:', 'finished:', 'canceled:', 'stopped:' }
local function counts_of(queue)
  local found = { redis.pcall('ZCOUNT', wip_key(queue), 100000000000, '(+inf') }
  for _, set in ipairs(SETS) do found[#found + 1] = redis.pcall('ZCARD', P .. set .. queue) end
  for i, count in ipairs(found) do if type(count) ~= 'number' then found[i] = 0 end end
  found[#found + 1] = redis.call('EXISTS', paused_key(queue))
  return found
end

-- The most of each figure in a step.
local function keep(tier, queue, step, figures)
  local key, place = series_key(tier, 'waiting', queue, step)
  local before, most = redis.call('HGET', key, place), {}
  for word in string.gmatch(before or '', '%d+') do most[#most + 1] = tonumber(word) end
  for i, figure in ipairs(figures) do most[i] = string.format('%d', math.max(most[i] or 0, figure)) end
  redis.call('HSET', key, place, table.concat(most, ' ', 1, 6))
  redis.call('EXPIRE', key, tier[3])
end

-- What the lifetime counters of a queue say now, beside what they said up to a minute ago: from the two anybody can
-- tell how many jobs came and went meanwhile, without readings of their own. Each: when (ms), came, went, failed. Then
-- how things stand at the last of the two: `figures` of `look`, and `counts_of`.
local FLOW_MS = 60000
local function note_flow(queue, figures)
  local rows = redis.pcall('HGETALL', P .. 'totals:' .. queue)
  if rows.err then return end
  local came, went, failed = 0, 0, 0
  for i = 1, #rows, 2 do
    local what, count = string.match(rows[i], '^(%a+)'), tonumber(rows[i + 1]) or 0
    if what == 'enqueued' or what == 'requeued' then came = came + count
    else went = went + count end
    if what == 'failed' then failed = failed + count end
  end
  local key = P .. 'flow:' .. queue
  local before = redis.pcall('GET', key)
  if type(before) == 'table' then return end -- an error: somebody else's
  local first, last = string.match(before or '', '^(%d+ %d+ %d+ %d+) (%d+ %d+ %d+ %d+)')
  local now = string.format('%d %d %d %d', now_ms, came, went, failed)
  if not first then
    first = now
  elseif now_ms - tonumber(string.match(first, '^%d+')) > FLOW_MS then
    first = last
  end
  local words = { first, now }
  if figures then
    for _, figure in ipairs(figures) do words[#words + 1] = string.format('%d', figure) end
    for _, count in ipairs(counts_of(queue)) do words[#words + 1] = string.format('%d', count) end
  end
  redis.call('SET', key, table.concat(words, ' '), 'PX', 5 * FLOW_MS)
end

local cursor, began = unpack(redis.call('HMGET', K_sample, 'cursor', 'began'))
if not cursor or cursor == '0' then
  local age = now_ms - (tonumber(began) or 0)
  if age >= 0 and age < tonumber(A_interval_ms) then return 0 end
  cursor, began = '0', now_ms
end
local keys
cursor, keys = unpack(redis.call('SSCAN', K_queues, cursor, 'COUNT', A_limit))
redis.call('HSET', K_sample, 'cursor', cursor, 'began', began)
local this_minute = (now_s - now_s % 60) / 60
for _, key in ipairs(keys) do
  local queue = queue_name(key)
  local figures, any = look(queue, key)
  note_flow(queue, figures)
  if any and series_name(K_names, queue, A_most) ~= OTHER then
    keep(SERIES_TIERS[1], queue, this_minute, figures)
    keep(SERIES_TIERS[2], queue, (this_minute - this_minute % 60) / 60, figures)
  end
end
if cursor == '0' then tell(A_duties, 'sample') end
return cursor == '0' and 0 or 1
