-- The claim half of `turn`. The next job is the highest class present in any of the worker's queues; the caller
-- rotates the queues' order, so equal classes are served round-robin.
-- INCLUDE: keys time callbacks count emit end_job inbox park schedule score turns ties limit states unique
-- RARER: put_off_broken note_pickle keep_origin take_over_one take_over gather pass_expired set_aside take_given
-- RARER: read_by_name end_expired score_in add_to
-- Uses: fifos hooked tied
-- Exports: chains held lacking leased reply unexpected

-- A step of a chain (`g` among its ties) is given what its parent returned: a claim copies it, once, into the step's
-- own record. The parent is there: it is not forgotten before its children have ended.
local function take_given(key)
  local given, parents = unpack(redis.call('HMGET', key, 'given', 'parents'))
  local parent = not given and string.match(parents or '', '^%["[?~]?([%w_-]+)"')
  if not parent then return end
  local status, result, serializer = unpack(redis.call('HMGET', job_key(parent), 'status', 'result', 'serializer'))
  if status ~= 'finished' then return end
  redis.call('HSET', key, 'given', result or 'null')
  if result and serializer == 'pickle' then redis.call('HSET', key, 'given_as', 'pickle') end
end

-- A worker takes a job: an execution of it begins.
local function on_claim(id, key, queue)
  if tied[key] then
    if tied[key] ~= 'k' and string.find(tied[key], 'u', 1, true) then pcall(let_go, id, key, 'started') end
  end
end

local TAKE_OVER = 20 -- ids taken over from an inbox at a time

-- RQ stores pickles, compressed, and does not mark them; in our records no word means JSON, which begins with neither
-- byte.
local function note_pickle(key, data)
  local first = string.byte(data)
  if first == 0x78 or first == 0x80 then return redis.call('HSETNX', key, 'serializer', 'pickle') == 1 end
end

-- A job was moved to this queue by hand: where it is requeued to stays what it was.
local function keep_origin(key, origin, queue)
  if origin ~= queue then redis.call('HSETNX', key, 'original_queue', origin) end
end

-- Ids that outsiders pushed to a LIST queue get a place of their own, in the order of the list.
local function take_over_one(queue, id, position)
  local key, ready = job_key(id), fifo_key(queue)
  local job = is_id(id) and redis.pcall('HMGET', key, 'status', 'data', 'origin', 'seq', 'ties', 'priority')
  if not job or job.err then return fail_corrupt(id, queue, nil, 'the inbox names what is no job') end
  local status, data, origin, known, ties, class = unpack(job)
  if ties then tied[key] = ties end
  if is_elsewhere(status) then return end
  local struck = position and is_struck(queue, id, position)
  if struck and not data then return end
  if not data then return fail_corrupt(id, queue, nil, 'the inbox names a job that has no data') end
  -- it waits there
  if origin and origin ~= queue and tonumber(redis.pcall('ZSCORE', ready_key(origin), id)) then return end
  if redis.call('ZSCORE', ready, id) then return end
  if struck == 'again' then return end
  if struck == 'struck' then return move_back(queue, id) end
  local seq = turn_of(queue, 1, next_seq(), '')
  redis.call('ZADD', ready, score_of(queue, 1, seq), id)
  if not known then note_pickle(key, data) end
  if known and origin then keep_origin(key, origin, queue) end
  redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'origin', queue)
  meet(known, origin, class, queue, class)
  mark_hooks(key)
  redis.call('SADD', QUEUES, queue_key(queue))
  if (not known or ties) and on_arrive(id, key, queue) == DISCARD then discard(id, key, queue, nil, true) end
end

-- Whether there are more.
local function take_over(queue)
  local ids = redis.call('LRANGE', queue_key(queue), 0, TAKE_OVER - 1)
  local struck = #ids > 0 and redis.call('EXISTS', inbox_key(queue)) == 1
  for i, id in ipairs(ids) do take_over_one(queue, id, struck and i) end
  if #ids > 0 then
    redis.call('LTRIM', queue_key(queue), #ids, -1)
    passed(queue, #ids)
  end
  return #ids == TAKE_OVER
end

-- Into the `rq:fifo:` key of a queue whose own key is no inbox of ours: what a process of before wrote to that key
-- while it was no LIST, and of a LIST what stock RQ's producers pushed, if this worker is to adopt it. Whether
-- there is more.
local function gather(queue)
  local waiting = redis.pcall('ZREVRANGE', queue_key(queue), 0, TAKE_OVER - 1, 'WITHSCORES')
  for i = 1, #waiting, 2 do
    redis.call('ZADD', fifo_key(queue), waiting[i + 1], waiting[i])
    redis.call('ZREM', queue_key(queue), waiting[i])
  end
  if #waiting > 0 then return #waiting == 2 * TAKE_OVER end
  for _, name in ipairs({ ADOPT }) do
    if name == queue then return take_over(queue) end
  end
  return false
end

-- The best entries of a queue, or of a set of its blocked jobs, in their order, up to `count`: a line, of which
-- `advance` gives one after another. `whole`: there are no others. `text`: the score of the last entry that was read,
-- if those of its class behind it are asked for alone: Redis writes out a score, and Lua reads it, in twice the time
-- that all else of an entry takes. Second: whether the inbox held nothing but corrupt ids and there are more.
local function look(queue, count, set, text, class)
  if text then
    local found = redis.call('ZREVRANGEBYSCORE', queue_key(queue), text, '(' .. class, 'LIMIT', '0', count)
    if found[1] then
      return { found = found, at = 0, step = 1, whole = false, id = nil, class = class, score = nil }
    end
  end
  local more = not set and fifos[queue] and not is_list(queue) and gather(queue)
  -- Redis writes a number out as a fraction, which takes long
  local last = count == 1 and '0' or count == 2 and '1' or count - 1
  local found = redis.pcall('ZREVRANGE', set and waits_key(set) or ready_key(queue), '0', last, 'WITHSCORES')
  if set and found.err then
    error(found)
  elseif set then -- one of blocked jobs, which never come by an inbox
  elseif found.err and not fifos[queue] then -- not known to be a LIST until now?
    fifos[queue] = nil
    if not in_fifo(queue) then error(found) end
    more = gather(queue)
    found = redis.call('ZREVRANGE', ready_key(queue), '0', count - 1, 'WITHSCORES')
  elseif found.err then
    error(found)
  elseif not found[1] and is_list(queue) then
    more = take_over(queue)
    found = redis.call('ZREVRANGE', ready_key(queue), '0', count - 1, 'WITHSCORES')
  end
  local whole = #found < 2 * count and (set or not is_list(queue) or not found[1])
  return { found = found, at = -1, step = 2, whole = whole, id = nil, class = nil, score = nil, aside = nil }, more
end

-- The line's next entry becomes its `id`, `class`, `score` and `aside` (it has expired, see below); no `id` if there is
-- none. One without a score has a class and a fraction, as those have that Fusion wrote.
local function advance(line)
  local at = line.at + line.step
  local id = line.found[at]
  line.at, line.id = at, id
  if id and line.step == 2 then
    local score = line.found[at + 1] + 0
    local aside = score < 0
    line.score, line.aside = score, aside
    line.class = aside and 0 or score < 255 and score - score % 1 or 255
  end
end

-- The score of an entry that stands in the queue.
local function score_in(queue, head)
  return head.score or tonumber(redis.call('ZSCORE', ready_key(queue), head.id))
end

-- What has expired goes behind all that waits, many entries at a time: there it stands in no fresh job's way until
-- `expire` ends it.
local ASIDE, AT_A_TIME = '-0.5', 500

local function pass_expired(queue)
  local ready, aside, missing = ready_key(queue), { 'XX' }, {}
  local ids = redis.call('ZREVRANGE', ready, '0', AT_A_TIME - 1)
  local over = redis.pcall('ZMSCORE', EXPIRING, unpack(ids))
  for i, id in ipairs(ids) do
    local expires = over[i]
    if not expires then -- an older producer enters it nowhere
      expires = redis.pcall('HGET', job_key(id), 'expires_at')
      if tonumber(expires) then missing[#missing + 1], missing[#missing + 2] = expires, id end
    end
    if (tonumber(expires) or now_ms + 1) <= now_ms then aside[#aside + 1], aside[#aside + 2] = ASIDE, id end
  end
  if missing[1] then redis.pcall('ZADD', EXPIRING, unpack(missing)) end
  if aside[2] then redis.call('ZADD', ready, unpack(aside)) end
end

local LEASE_END, held_key, held = string.format('%d', now_ms + A_lease_ms), worker_jobs_key(A_name), { nil, nil }
local leased = { queue = nil } -- by queue: what is to be entered among those that run, behind the first
local unexpected = {} -- ids that are to leave the index of expiry

local lacking -- tasks that this worker was found to lack: their jobs are for others

-- A job that its queue holds and this worker must not run now: it is blocked, and true is returned. One lost so often
-- that the next loss is to be its own; and one of a task that the worker lacks.
local function set_aside(queue, id, key, head, task, deliveries, log_tag)
  if (tonumber(deliveries) or 0) >= PROBATION then
    local lost, on_lost = unpack(redis.call('HMGET', key, 'lost', 'on_lost'))
    if (tonumber(lost) or 0) >= PROBATION and on_lost ~= 'again' then
      local score = score_in(queue, head)
      park(id, key, queue, 'probation:' .. queue, score, '+inf', 'lost again and again: each runs alone')
      emit('blocked', id, queue, log_tag, 'worker', A_name, 'reason', 'probation')
      return true
    end
  end
  local why, set = task and lacking[task], task and 'held:' .. queue .. ':' .. task
  if not why or not has_room(set) then return false end
  local since = tonumber(redis.call('HGET', key, 'held_since'))
  park(id, key, queue, set, score_in(queue, head), (since or now_ms) + HOLD_MS, why, 'held_since', since or now_ms,
    'reason', why)
  if not since then emit('blocked', id, queue, log_tag, 'worker', A_name, 'reason', string.match(why, '^[%w_.]*')) end
  return true
end

-- What is written down of its concurrency key can't be read: in its place it would keep all others waiting.
local function put_off_broken(id, key, queue, set, log_tag, why)
  schedule(id, now_ms + LATER_MS)
  redis.call('HSET', key, 'status', 'scheduled', 'reason', error_text(why))
  if set then unpark(id, key, queue) end
  emit('held', id, queue, log_tag, 'worker', A_name, 'reason', 'its concurrency key is broken')
end

-- A record of so few fields is read whole: their number and all of them cost less than the names of all that a run may
-- need. Of a larger one, which may hold long texts besides, those are read by name.
local FEW_FIELDS = 16
local function read_by_name(key)
  local names, fields = { 'status', 'expires_at', 'deliveries', 'seq', RUN_FIELDS, 'hooks' }, {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do fields[names[i]] = value or nil end
  return fields
end

-- What has waited longer than it may ends without a run.
local function end_expired(id, key, queue, set, job)
  if job.hooks then hooked[key] = true end
  local class = redis.call('HGET', key, 'priority')
  end_job(id, key, queue, class, 'expired', CANCELED_TTL, nil, 'origin', queue, 'ended_at', now_iso, 'reason',
    'expired', 'seq', job.seq or '')
  meet(job.seq, job.origin, class, queue, class)
  if set then unpark(id, key, queue) end
  emit('expired', id, queue, job.log_tag, 'reason', 'waited longer than its ttl')
end

-- What the caller answers: words of its own, and behind them of each job how many words it has, and these. A list that
-- is made with room for its first entries need not grow.
local reply = { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }
local function add_to(list, ...)
  local words = { ... }
  list[#list + 1] = #words
  for _, word in ipairs(words) do list[#list + 1] = word end
end

-- Lease an entry of a queue, or of a set of its blocked jobs. Returns true if the reply has the job, false when the
-- entry was no work, and whether it had expired, nil when it was set aside. In any case the caller takes it out of the
-- queue or set afterwards, and writes down `held` and `leased`: what may be of a wrong type shows here, before the job
-- changes.
-- KEYED for a job that has a slot of its key, or shares a call with others, and is not claimed ahead: it stays.
-- `behind`: a chain whose last job it is to follow. It has no slot: it runs in that job's slot, after it, in the same
-- process, and only if that job finishes there. The commit of that job gives it the slot (`pass_slot_on`).
local KEYED = 'keyed'
local chains = {} -- by key: the last job that this call gave: name of the key, its id and execution
local function take(queue, head, exec, set, behind)
  local id = head.id
  local key = job_key(id)
  local size = is_id(id) and redis.pcall('HLEN', key)
  if size ~= 6 and type(size) ~= 'number' then
    fail_corrupt(id, queue, nil, 'the queue names what is no job')
    return false
  end
  local fresh, job, name = false, nil, nil
  local status, seq, data, origin, func, created_at, expires, deliveries, log_tag, ties
  -- as an enqueue without options wrote it: the sixth field is its place, and nothing has given it a time to go
  if size == 6 then
    local found = redis.call('HMGET', key, 'status', 'origin', 'created_at', 'func', 'data')
    status, origin, created_at, func, data = found[1], found[2], found[3], found[4], found[5]
    fresh = status and origin and created_at and func and data and true
  end
  if not fresh then
    if size <= FEW_FIELDS then
      local found = redis.call('HGETALL', key)
      job = {}
      for i = 1, #found, 2 do job[found[i]] = found[i + 1] end
    else
      job = read_by_name(key)
    end
    status, seq, data, origin, func = job.status, job.seq, job.data, job.origin, job.func
    expires, deliveries, log_tag, ties = job.expires_at, job.deliveries, job.log_tag, job.ties
    -- the same with a concurrency key, and its number of slots if its enqueue named that, as the only options
    if ties == 'k' and size == (job.max_concurrent and 9 or 8) then
      name, created_at = job.concurrency_key, job.created_at
      fresh = name and status and origin and created_at and func and data and true
    end
  end
  if not (fresh or seq) and redis.call('HEXISTS', key, 'success_callback_name') == 1 then
    fail_corrupt(id, queue, nil, 'the queue names a job of stock RQ')
    return false
  end
  if set then
    if status ~= 'blocked' or redis.call('HGET', key, 'waits_in') ~= set then return false end
  elseif status ~= 'queued' and is_elsewhere(status) then
    return false
  end
  if ties then tied[key] = ties end
  if not data then
    fail_corrupt(id, queue, nil, 'the queue names a job that has no data', not head.score or head.score % 1 ~= 0)
    return false
  end
  if expires and (tonumber(expires) or math.huge) <= now_ms then
    end_expired(id, key, queue, set, job)
    unexpected[#unexpected + 1] = id
    return false, true
  end
  -- an old producer's gets a place of its own first
  local placed = (not head.score or head.score % 1 ~= 0) and (fresh or tonumber(seq))
  local own = placed and origin == queue
  if fresh and not own then seq = redis.call('HGET', key, 'seq') end
  if own and not set and (deliveries or lacking) then
    local task = lacking and (func or string.match(data, '^%["([%w_.]+)"'))
    if set_aside(queue, id, key, head, task, deliveries, log_tag) then return nil end
  end
  local ahead = ties and mark_of(exec) == AHEAD
  if ahead and string.find(ties, 'm', 1, true) then return KEYED end
  local others = ties ~= 'k' and ties -- if a concurrency key is not its only tie
  local keyed = ties and (not others or string.find(others, 'k', 1, true))
  if keyed and not behind then
    local ok, has
    ok, has, name = pcall(take_slot, id, key, queue, head.score, log_tag, ahead, name)
    if not ok then return put_off_broken(id, key, queue, set, log_tag, has) end
    if has == nil then return KEYED end
    if not has then
      if set then
        redis.call('ZREM', waits_key(set), id)
        if string.sub(set, 1, 5) == 'held:' then redis.call('HSET', key, 'wanted', 1) end
        on_arrive(id, key, queue) -- it stands in line for its queue
      end
      return nil
    end
  end
  local entries = leased[queue]
  if entries then
    local n = #entries
    entries[n + 1], entries[n + 2] = LEASE_END, id
  else
    redis.call('ZADD', wip_key(queue), LEASE_END, id)
    leased[queue] = {}
  end
  if not held[1] then redis.call('HSET', held_key, id, exec) end
  local n = #held
  held[n + 1], held[n + 2] = id, exec
  redis.call('HSET', key, 'status', 'started', 'execution_id', exec, 'worker_name', A_name, 'started_at', now_iso,
    'deliveries', deliveries and (tonumber(deliveries) or 0) + 1 or '1')
  if not own then -- an old producer's: it gets a place of its own, should it ever come back
    local was = redis.call('HGET', key, 'priority')
    redis.call('HSET', key, 'seq', next_seq(), 'priority', head.class, 'origin', queue)
    meet(seq, origin, was, queue, head.class)
    redis.call('SADD', QUEUES, queue_key(queue))
    mark_hooks(key)
    if seq and origin then keep_origin(key, origin, queue) end
    if not seq and note_pickle(key, data) then job.serializer = 'pickle' end
    if job then job.origin = queue end
  end
  if not fresh then redis.call('PERSIST', key) end
  if set then unpark(id, key, queue) end
  if set or not placed then on_arrive(id, key, queue) end
  on_claim(id, key, queue)
  if expires then unexpected[#unexpected + 1] = id end
  emit('processing', id, queue, log_tag, 'worker', A_name)
  local follows = behind and exec .. ' ' .. behind.exec
  if follows then redis.call('HSET', key, 'follows', follows) end
  if name and not (behind or others and string.find(others, 'm', 1, true)) then
    chains[#chains + 1] = { name = name, id = id, exec = exec }
  end
  -- most jobs have few of them: each that is answered costs both sides
  local more
  if others and string.find(others, '[bgmr]') or ahead and keyed then
    if string.find(ties, 'g', 1, true) then take_given(key) end
    -- of the run before this one
    if string.find(ties, 'r', 1, true) then redis.call('HDEL', key, 'callback_error', 'result_error') end
    if fresh then -- it was claimed ahead
      more = { [N_TIED_FIELDS + 1] = name, [N_TIED_FIELDS + 2] = follows }
    else
      more = redis.call('HMGET', key, TIED_FIELDS, CHAIN_FIELDS)
    end
  end
  -- nothing fails any more: the reply has all words of a job or none
  local at = #reply + 4
  reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = ties and 7 or 6, queue, id, exec
  if fresh and not more then
    reply[at + 1], reply[at + 2], reply[at + 3] = data, func, created_at
    if ties then reply[at + 4] = ties end
    return true
  end
  local names, last = { RUN_FIELDS }, N_RUN_FIELDS
  while not (more or job[names[last]]) do last = last - 1 end
  for i = 1, last do reply[at + i] = job[names[i]] or false end
  if more then
    local n = N_TIED_FIELDS + (ahead and N_CHAIN_FIELDS or 0)
    while n > 0 and not more[n] do n = n - 1 end
    for i = 1, n do reply[at + last + i] = more[i] or false end
    last = last + n
  end
  reply[at - 3] = last + 3
  return true
end
