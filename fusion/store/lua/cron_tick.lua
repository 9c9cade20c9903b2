-- cron_tick: decide the ticks of an entry up to one of them: a job for each that is to run, and the mark moves past
--   them all.
-- KEYS: entry due marks
-- ARGV: id rev mark nonce overlap queue priority ttl_ms upto next missed n_pairs n_ticks
-- INCLUDE: keys time count score ring turns sound ties accept cron newcomer attach
-- Uses: tied
-- Rest: pairs (the jobs' fields), then per tick: its Unix seconds, its name in the job's id, ms by which it is put off
-- Returns: {ok | taken <id> (a tick did not run: a job of that id is there, and it is not the tick's) | stale (others
--   were faster, or the entry changed) | early (the clock was set back) | error: why, jobs enqueued, ticks skipped}
-- Events: queued scheduled deferred
-- One job per (entry, tick): only who knows the mark moves it, and a job of that id is never made twice. A resend
-- answers as the first time. What can't be enqueued (a broken queue key) leaves the mark where it is; the entry says
-- why and is looked at again in half a minute. With `overlap` queue a tick that meets a job of the entry which has not
-- ended makes one that is deferred until it has, however that ends; not if one is deferred already.
local rev, nonce, answer, paused, last, by_hand = unpack(redis.call('HMGET', K_entry, 'rev', 'nonce', 'answer',
    'paused', 'last_job', 'manual_job'))
if nonce == A_nonce then
  local enqueued, skipped, others = string.match(answer, '(%d+) (%d+) ?(%S*)')
  return { others == '' and 'ok' or 'taken ' .. others, tonumber(enqueued), tonumber(skipped) }
end
if rev ~= A_rev or paused or (redis.call('ZSCORE', K_marks, A_id) or '') ~= A_mark then return { 'stale', 0, 0 } end
if tonumber(A_upto) > now_s then
  -- there is nothing to decide before that
  if (tonumber(A_mark) or 0) > now_s then redis.call('ZADD', K_due, A_mark, A_id) end
  return { 'early', 0, 0 }
end

local first_pair, at = REST, REST + A_n_pairs
local enqueued, skipped, missed, mark, queued, taken, PUT_OFF = 0, 0, tonumber(A_missed), A_mark, false, nil, 30

-- A line for the history. What was missed is older than the ticks that run and comes first, together with the first of
-- them.
local function note(tick, outcome, what)
  if missed > 0 then
    note_decision(A_id, A_upto, 'missed', missed)
    redis.pcall('HINCRBY', K_entry, 'missed', missed)
    missed = 0
  end
  if tick then note_decision(A_id, tick, outcome, what) end
end

-- Whether a job of the tick's id is the tick's.
local function is_its(key) return redis.pcall('HGET', key, 'cron') == A_id end

-- A job for the tick, unless another has its unique key. `behind`: it waits for those.
local function enqueue(tick, id, delay, behind)
  local last_pair = at - 1
  local unique = unique_of(first_pair, last_pair)
  local other = unique and meets(unique, nil, A_queue)
  if other and other.way ~= 'replace' then
    note(tick, 'duplicate', other.owner)
    skipped = skipped + 1
    return
  end
  local key = field_of('concurrency_key', first_pair, last_pair)
  local broken = key and broken_limit(key, A_queue)
  if broken then error(broken, 0) end
  redis.call('SADD', QUEUES, queue_key(A_queue))
  local due = tonumber(delay) > 0 and tick * 1000 + delay or nil
  local place, later = next_seq(), nil
  if behind then
    attach(id, behind, place)
  elseif not due or due <= now_ms then
    place = turn_of(A_queue, A_priority, place, field_of('fair_key', first_pair, last_pair) or '')
  end
  if unique then
    later = accept_unique(unique, A_queue, id, A_priority, due, false, tonumber(A_ttl_ms), A_nonce, place, nil,
        first_pair, last_pair, behind)
  else
    later = accept(A_queue, id, A_priority, due, false, tonumber(A_ttl_ms), A_nonce, place, nil, first_pair, last_pair,
      behind)
  end
  if behind then
    redis.call('HSET', job_key(id), 'parents', cjson.encode(behind), 'ties', (tied[job_key(id)] or '') .. 'p')
  end
  redis.call('HSET', job_key(id), 'cron', A_id)
  last, enqueued, queued = id, enqueued + 1, queued or not later
  note(tick, 'enqueued', id)
end

-- The jobs of the entry that have not ended, as parents of the next; nil if there is none. Second: one of them waits.
local function live_ones()
  local found, waits = {}, nil
  for _, id in ipairs({ last or '', by_hand or '' }) do
    if is_live(id) then
      found[#found + 1] = '?' .. id
      if redis.call('HGET', job_key(id), 'status') == 'deferred' then waits = id end
    end
  end
  return found[1] and found, waits
end

local function run(tick, name, delay)
  local id = 'cron-' .. A_id .. '-' .. name
  if redis.call('EXISTS', job_key(id)) == 1 then
    if is_its(job_key(id)) then
      note(tick, 'exists', id)
    else
      taken = taken or id
      note(tick, 'taken', id)
    end
  elseif A_overlap == 'skip' and (is_live(last) or is_live(by_hand)) then
    note(tick, 'overlap', is_live(last) and last or by_hand)
    skipped = skipped + 1
  else
    local behind, waits
    if A_overlap == 'queue' then behind, waits = live_ones() end
    if waits then
      note(tick, 'overlap', waits)
      skipped = skipped + 1
    else
      enqueue(tick, id, delay, behind)
    end
  end
  mark = tick
end

local ok, problem = true, nil
for i = 0, A_n_ticks - 1 do
  local tick, name, delay = unpack(ARGV, at + 3 * i, at + 3 * i + 2)
  ok, problem = pcall(run, tonumber(tick), name, delay)
  if not ok then break end
end
write_tallies()
-- The mark first: nothing that can fail stands between a job and the mark that says it was made.
if ok then
  mark = A_upto
  redis.call('ZADD', K_marks, mark, A_id)
  redis.call('ZADD', K_due, A_next == '' and '+inf' or A_next, A_id)
  note()
  redis.call('HSET', K_entry, 'next', A_next, 'nonce', A_nonce, 'answer', enqueued .. ' ' .. skipped .. (taken
      and ' ' .. taken or ''))
  if taken then
    redis.call('HSET', K_entry, 'error',
        'a tick did not run: the id ' .. taken .. ' is taken by a job that is not of this entry', 'error_at', now_iso)
  else
    redis.call('HDEL', K_entry, 'error', 'error_at')
  end
else
  problem = error_text(problem)
  if mark ~= A_mark then redis.call('ZADD', K_marks, mark, A_id) end
  redis.call('ZADD', K_due, now_s + PUT_OFF, A_id)
  redis.call('HSET', K_entry, 'error', problem, 'error_at', now_iso)
end
if enqueued > 0 then
  redis.call('HSET', K_entry, 'last_job', last)
  redis.pcall('HINCRBY', K_entry, 'enqueued', enqueued)
end
if skipped > 0 then redis.pcall('HINCRBY', K_entry, 'overlapped', skipped) end
if queued then ring(A_queue, tonumber(A_priority)) end
return { ok and (taken and 'taken ' .. taken or 'ok') or 'error: ' .. problem, enqueued, skipped }
