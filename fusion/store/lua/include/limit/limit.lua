-- Concurrency keys. Some jobs of a key hold a slot: those wait in their queues, scored here by their own
-- place, or run, scored +inf. The others are `blocked` and wait by (priority, arrival) inside the key; `waits_in` is
-- `limit:<key>`. Settling a key is level-triggered: it looks at what is, so nothing is ever handed on twice. After it
-- - there are as many holders as the limit says, or nobody waits;
-- - nobody who waits has a better place than a holder that has not started;
-- - there are not more holders than the limit says, but for those that run.
-- INCLUDE: keys time rate emit ring score schedule ties turns
-- OFTEN: bounds_of limit_of may_start put_in_line admit step_back settle_now settle_key settle_all name_limit
-- OFTEN: arrive_at_limit take_slot look_at_limit stop_counting take_slot_back look_due leave_limit return_to_limit
-- OFTEN: closed_until hold_key_back keep_for_worker place_in_key in_use_of pass_slot_on look_once arrive_like_others
-- OFTEN: locks_of write_locks settle_lock free_lock free_locks drop_lock
-- Uses: key_alone soonest tied
-- Exports: steps_left unrung unsettled
local LATER_MS, DISCARD = 30000, 'discard'
local LONGEST_HOLD_MS = 86400000 -- that a task can ask for: a longer one is of a clock that was set back since

-- Jobs that may be admitted or step back in this call, of all keys together; what is left is due at once, and `promote`
-- goes on with it. A key that is settled has two of its own, so that what one job's end brings about is done with it.
local steps_left = 80

-- What this call knows of the keys of its new jobs, by name; valid until anything but a new job changes the key.
-- `true` after the first job. From the second on: the limits that the jobs gave (`max`, `rate`), the number of slots,
-- the number in use, whether jobs wait, and the lowest place of a job that holds a slot.
local arrivals = {}
local bounds = {} -- by name: what this call knows of it, see `bounds_of`
local in_use = {} -- by name: how many of its jobs run; valid until anything but a start changes the key
-- Of a turn, nil in other calls: queues of jobs that were admitted, of whom it tells others once it has taken what it
-- can itself. While there is such a list keys are settled late, once each, at the end of each half. So a key of which
-- many jobs end is read once; and what the claim half takes out of queues, which it does late, meets no job that was
-- admitted meanwhile.
local unrung
local unsettled -- by the name of a key that is to be settled late: how often; nil if there is none

-- The instant (ms) until which a key is closed, infinite for no end: a person paused it, or one of its tasks holds it
-- back; nil if neither.
local function closed_until(paused, held_back)
  local until_ms, hold = tonumber(paused) or 0, tonumber(held_back) or 0
  if hold > until_ms and hold <= now_ms + LONGEST_HOLD_MS then until_ms = hold end
  return until_ms > now_ms and until_ms or nil
end

-- What bounds a key now, which is read once for a call, and once more if it is changed. `limit`: how many may hold a
-- slot, those that run included; `interval` and `burst` of its rate, or nil, and its `tat`; `opens`: the ms at which it
-- opens again, if it is closed for a time.
local function bounds_of(name)
  local known = bounds[name]
  if known then return known end
  local max, pinned, paused, own_rate, rate, tat, held_back = unpack(redis.call('HMGET', limit_key(name), 'max',
      'pinned', 'paused', 'rate', 'pinned_rate', 'tat', 'held_back'))
  local opens = (paused or held_back) and closed_until(paused, held_back)
  if opens then
    known = { limit = 0, opens = opens < math.huge and opens }
  else
    known = { limit = tonumber(pinned) or tonumber(max), tat = tat }
    if rate or own_rate then known.interval, known.burst = rate_of(rate or own_rate) end
    known.limit = known.limit or known.interval and math.huge or 1
  end
  bounds[name] = known
  return known
end

-- How many may hold a slot now. Each that waits in a queue has a token of the rate, which its claim will spend: those
-- that run, and as many as there are tokens.
local function limit_of(name)
  local known = bounds_of(name)
  local limit, interval, burst, tat = known.limit, known.interval, known.burst, known.tat
  if not interval then return limit, known.opens end
  local held, now = holders_key(name), now_s * 1000000 + now_us
  local idle = redis.call('ZCOUNT', held, '-inf', '(+inf')
  local room = rate_room(tat, now, interval, burst)
  local upto = redis.call('ZCARD', held) - idle + room
  if upto >= limit then return limit end
  -- the next token is due then, unless a claim has to come first
  return upto, room < burst and math.floor((now + used_ahead(tat, now, interval, burst) - (burst - room - 1) * interval)
      / 1000) + 1 or nil
end

-- Something is to be looked at again at `ms`: `promote` does.
local function look_at_limit(member, ms)
  redis.call('ZADD', LIMITS_DUE, 'LT', ms, member)
  soonest = math.min(soonest or ms, ms)
  if (redis.call('ZRANGE', LIMITS_DUE, 0, 0)[1]) == member then ring_scheduler(ms) end
end

-- The place of a job in the order of its key, which is that of arrival. So is its place in its queue, `score`, but
-- where there are fair turns, which are each queue's own time: there it has a number for its key, noted with that of
-- the turn that it was given for. `arrives`: it gets one, unless it has run: then it is back at the place it had.
local function place_in_key(key, queue, score, arrives)
  if not has_turns(queue) then return score end
  local seq, known, priority, ran = unpack(redis.call('HMGET', key, 'seq', 'place_in_key', 'priority', 'deliveries'))
  if not (known or arrives and not ran) or not tonumber(seq) or tonumber(seq) < 0 then return score end
  local turn, place = string.match(known or '', '^(%S+) (%S+)$')
  if turn ~= seq then
    place = next_seq()
    redis.call('HSET', key, 'place_in_key', seq .. ' ' .. string.format('%d', place))
  end
  return score_of(queue, priority, place)
end

-- A job that has no slot waits for one; the caller takes it out of where it stood, but for its queue.
local function put_in_line(name, id, key, queue, score, log_tag)
  redis.call('ZADD', queue_up_key(name), score, id)
  redis.call('ZADD', P .. 'blocked:' .. queue, '+inf', id)
  redis.call('HSET', key, 'status', 'blocked', 'waits_in', 'limit:' .. name)
  redis.call('ZREM', ready_key(queue), id)
  emit('blocked', id, queue, log_tag, 'reason', 'limit', 'limit', name)
end

-- The best that waits gets a slot, and its place in its queue. Returns how many slots that took: none, or one.
-- `behind`: it shares the slot of the job before it, see `take`.
local function admit(name, id, score, behind)
  local key, took = job_key(id), 0
  local status, queue, log_tag, set, place = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag', 'waits_in',
    'place_in_key'))
  if status ~= 'blocked' or set ~= 'limit:' .. name then
    if status == 'started' and redis.call('ZRANGE', locks_key(name), 0, 0)[1] == id then
      took = redis.call('ZADD', holders_key(name), '+inf', id) -- its run has the lock now
    end
    redis.call('ZREM', queue_up_key(name), id)
    return took
  end
  local at = score
  if place then
    local priority, seq = unpack(redis.call('HMGET', key, 'priority', 'seq'))
    if tonumber(seq) then at = score_of(queue, priority, seq) end
  end
  enter_line(queue, at, id)
  if not behind then took = redis.call('ZADD', holders_key(name), score, id) end
  redis.call('HSET', key, 'status', 'queued')
  redis.call('HDEL', key, 'waits_in')
  redis.call('ZREM', P .. 'blocked:' .. queue, id)
  redis.call('ZREM', queue_up_key(name), id)
  emit('queued', id, queue, log_tag, 'reason', 'admitted')
  if behind then return took end
  if unrung then unrung[queue] = true else ring(queue, class_of(score)) end
  return took
end

-- A holder that has not started gives its slot up for a better one, or for a limit that is less by now.
local function step_back(name, id, score)
  local key = job_key(id)
  local status, queue, log_tag, set = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag', 'waits_in'))
  local alone = status == 'blocked' and string.sub(set or '', 1, 10) == 'probation:'
  if status == 'queued' or alone then put_in_line(name, id, key, queue, score, log_tag) end
  if alone then redis.call('ZREM', P .. 'waits:' .. set, id) end -- when it is admitted it is set aside again
  redis.call('ZREM', holders_key(name), id)
end

-- `times`: how often it was to be settled.
local function settle_now(name, times)
  local held, waiting = holders_key(name), queue_up_key(name)
  local limit, due = limit_of(name)
  if due and redis.call('EXISTS', waiting) == 1 then look_at_limit(name, due) end
  local count, steps, admitted = redis.call('ZCARD', held), math.max(2 * times, steps_left), 0
  while steps > 0 do
    if count < limit then
      local free = math.min(math.ceil(limit - count), steps)
      local best = redis.call('ZRANGE', waiting, '0', free == 1 and '0' or free - 1, 'REV', 'WITHSCORES')
      if not best[1] then return end
      for i = 1, #best, 2 do
        local ok, took = pcall(admit, name, best[i], best[i + 1])
        if not ok then return look_at_limit(name, now_ms + LATER_MS) end -- its queue is broken: it keeps its place
        count, admitted, steps, steps_left = count + took, admitted + took, steps - 1, steps_left - 1
      end
      if #best < 2 * free then return end
    else
      if count == admitted then return end -- they are the best there were
      local worst = redis.call('ZRANGE', held, '0', '0', 'WITHSCORES')
      if not worst[1] or worst[2] == 'inf' then return end
      if count == limit then
        local best = redis.call('ZRANGE', waiting, '0', '0', 'REV', 'WITHSCORES')
        if not (best[1] and tonumber(best[2]) > tonumber(worst[2])) then return end
      end
      step_back(name, worst[1], worst[2])
      if due then look_at_limit(name, due) end -- until then nobody may have waited
      due = nil
      count, steps, steps_left = count - 1, steps - 1, steps_left - 1
    end
  end
  look_at_limit(name, now_ms)
end

local function settle_key(name)
  arrivals[name], in_use[name] = nil, nil
  if unrung then
    unsettled = unsettled or {}
    unsettled[name] = (unsettled[name] or 0) + 1
  else
    settle_now(name, 1)
  end
end

-- Settles the keys that were put off.
local function settle_all()
  local names = unsettled
  unsettled = nil
  for name, times in pairs(names) do pcall(settle_now, name, times) end -- a broken one must not take others with it
end

-- A provider asked a task of a key to stay away: no job of the key starts before that instant (ms). It is not a
-- pause: that is a person's, and neither ends the other.
local function hold_key_back(key, ms)
  local name = redis.call('HGET', key, 'concurrency_key')
  if not name or (closed_until(nil, redis.call('HGET', limit_key(name), 'held_back')) or 0) >= ms then return end
  redis.call('HSET', limit_key(name), 'held_back', string.format('%d', ms))
  bounds[name] = nil
  redis.call('ZADD', LIMITS, now_ms, name)
end

-- What a job says of its key: what the last enqueue named holds, unless a person pinned another. What comes later than
-- its enqueue says something only where nobody has. Returns whether that changed anything.
local function name_limit(name, max, rate, named)
  redis.call('ZADD', LIMITS, now_ms, name)
  local max_now, rate_now = unpack(redis.call('HMGET', limit_key(name), 'max', 'rate'))
  local news = {}
  if max and max ~= max_now and (named or not max_now) then news[1], news[2] = 'max', max end
  if rate and rate ~= rate_now and (named or not rate_now) then news[#news + 1], news[#news + 2] = 'rate', rate end
  if not news[1] then return false end
  redis.call('HSET', limit_key(name), unpack(news))
  bounds[name] = nil
  return true
end

-- How many jobs of a key run: counted once for all that this call starts.
local function in_use_of(name)
  local count = in_use[name] or redis.call('ZCOUNT', holders_key(name), '+inf', '+inf')
  in_use[name] = count
  return count
end

-- A job that has a slot starts, if its key lets it: many slots at a time are not taken back at once. If the key has a
-- rate, that is a token of it. False: there is no place, or no token.
local function may_start(name)
  local known = bounds_of(name)
  local interval, burst, tat = known.interval, known.burst, known.tat
  if in_use_of(name) >= known.limit then return false end
  if not interval then return true end
  local now = now_s * 1000000 + now_us
  if rate_room(tat, now, interval, burst) < 1 then return false end
  redis.call('HSET', limit_key(name), 'tat', string.format('%.17g', rate_spend(tat, now, interval, burst, 1)))
  bounds[name] = nil
  settle_key(name)
  return true
end

-- Reads a key once for all jobs of it that this call still brings. Returns nil if the key has a rate, is closed for a
-- time, or has other limits than the jobs gave.
local function look_once(name, max, rate)
  local known = bounds_of(name)
  local max_now, rate_now = unpack(redis.call('HMGET', limit_key(name), 'max', 'rate'))
  if known.interval or known.opens or known.limit == 0 or max ~= max_now or rate ~= rate_now then return nil end
  local held = holders_key(name)
  local worst = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]
  return { max = max, rate = rate, limit = known.limit, held = redis.call('ZCARD', held),
    waiting = redis.call('EXISTS', queue_up_key(name)) == 1, worst = tonumber(worst) or math.huge }
end

-- Handles a further new job of a key by what is known of the key. Returns whether the job is blocked.
local function arrive_like_others(name, id, key, queue, score, log_tag, known)
  score = tonumber(score)
  if known.held < known.limit and not known.waiting then
    redis.call('ZADD', holders_key(name), score, id)
    known.held, known.worst = known.held + 1, math.min(known.worst, score)
    return false
  end
  put_in_line(name, id, key, queue, score, log_tag)
  known.waiting = true
  if score <= known.worst then return true end
  settle_key(name)
  return redis.call('HGET', key, 'status') == 'blocked'
end

-- A job stands in its queue, and takes a slot or is blocked; returns true if it is, DISCARD if the caller is to end
-- it. One that stands in an inbox does so when it is taken over from there. `named`: by an enqueue just now. It may
-- have a slot already: it was lost, and kept it over its pause.
local function arrive_at_limit(id, key, queue, named)
  local name, max, rate, log_tag = unpack(redis.call('HMGET', key, 'concurrency_key', 'max_concurrent', 'rate',
      'log_tag'))
  if not name then return end
  local known = named and arrivals[name]
  if known == true then
    known = look_once(name, max, rate)
    arrivals[name] = known
  elseif known and (known.max ~= max or known.rate ~= rate) then
    known = nil
  end
  if known and not string.find(tied[key], 'd', 1, true) then
    local score = redis.call('ZSCORE', ready_key(queue), id)
    if not score then return end
    return arrive_like_others(name, id, key, queue, place_in_key(key, queue, score, true), log_tag, known)
  end
  local changed = name_limit(name, max, rate, named)
  local score, held, way = redis.call('ZSCORE', ready_key(queue), id), holders_key(name), nil
  if not score then
    if changed then settle_key(name) end
    return
  end
  score = place_in_key(key, queue, score, true)
  if not named and redis.call('ZSCORE', held, id) then
    redis.call('ZADD', held, score, id)
    changed = true
  elseif redis.call('ZCARD', held) < limit_of(name) and redis.call('EXISTS', queue_up_key(name)) == 0 then
    redis.call('ZADD', held, score, id)
  elseif string.find(tied[key], 'd') then
    way = DISCARD
  else
    put_in_line(name, id, key, queue, score, log_tag)
    changed = true
  end
  if string.find(tied[key], 'd') then
    tied[key] = string.gsub(tied[key], 'd', '')
    redis.call('HSET', key, 'ties', tied[key])
  end
  if changed then settle_key(name) end
  arrivals[name] = named or nil
  return way or redis.call('HGET', key, 'status') == 'blocked'
end

-- A worker takes a job that stands in a queue, or in another set of blocked ones: false if it has no slot, and can get
-- none, or its key's rate has no token: then it is blocked for its key. `ahead`: it is to wait behind others; nil if it
-- must not, and nothing has changed. Second: the key, if its slots count nothing but jobs that run.
-- One that is claimed ahead waits with its slot in a process. With it at most half of the key's slots are in use: the
-- others stay for workers that can start a job at once. If the start spends a token of a rate, or a time counts from
-- it, the job is not claimed ahead.
-- `score`: its place in its queue, if it is known. `name`: the key of a job that has no option but that.
local function take_slot(id, key, queue, score, log_tag, ahead, name)
  local duration
  if not name then name, duration = unpack(redis.call('HMGET', key, 'concurrency_key', 'limit_duration')) end
  if not name then return true end
  local held, known, count = holders_key(name), bounds_of(name), in_use_of(name)
  if ahead and (duration or known.interval or count + 1 > known.limit / 2) then return nil end
  -- mostly it has its slot, and starting takes nothing else
  if not known.interval and count < known.limit and redis.call('ZADD', held, 'XX', 'CH', '+inf', id) == 1 then
    in_use[name] = count + 1
  else
    local has = redis.call('ZSCORE', held, id)
    if not has then
      redis.call('ZADD', LIMITS, now_ms, name)
      has = redis.call('ZCARD', held) < limit_of(name) and redis.call('EXISTS', queue_up_key(name)) == 0
    end
    if not (has and may_start(name)) then
      score = score or redis.call('ZSCORE', ready_key(queue), id)
      put_in_line(name, id, key, queue, place_in_key(key, queue, score), log_tag)
      redis.call('ZREM', held, id)
      settle_key(name)
      return false
    end
    redis.call('ZADD', held, '+inf', id)
    in_use[name] = nil
  end
  if duration then look_at_limit(name .. ' ' .. id, now_ms + duration) end
  return true, not duration and name
end

-- The time for which a job may keep its slot counts from its start.
local function stop_counting(name, id, key)
  if string.find(tied[key], 't') then redis.call('ZREM', LIMITS_DUE, name .. ' ' .. id) end
end

-- That time is over, or a person decides it: others may start beside it.
local function take_slot_back(name, id, why)
  local queue, log_tag = unpack(redis.call('HMGET', job_key(id), 'origin', 'log_tag'))
  if redis.call('ZREM', holders_key(name), id) == 0 then return false end
  emit('slot_released', id, queue or '', log_tag, 'limit', name, 'reason', why)
  settle_key(name)
  return true
end

-- Something of a key is due: its time, or that of a job that has a slot.
local function look_due(member)
  local name, id, held = string.match(member, '^(%S+) ?(%S*) ?(%S*)$')
  if id == '' then return settle_key(name) end
  local status, set = unpack(redis.call('HMGET', job_key(id), 'status', 'waits_in'))
  if held == '' and status == 'started' then
    take_slot_back(name, id, 'limit_duration')
  elseif held ~= '' and status == 'blocked' and string.sub(set or '', 1, 5) == 'held:' then
    take_slot_back(name, id, 'its task')
  end
end

-- A job that waits for its task keeps its slot if a worker that has the task was there before and found none for it:
-- else those that lack the task could hand it on for ever. Not for long, as that worker may be gone.
local function keep_for_worker(id, key, score)
  local name, wanted = unpack(redis.call('HMGET', key, 'concurrency_key', 'wanted'))
  if not (wanted and name and redis.call('ZSCORE', holders_key(name), id)) then return false end
  redis.call('ZADD', holders_key(name), score, id)
  redis.call('ZREM', LIMITS_DUE, name .. ' ' .. id .. ' held') -- of an earlier time that it kept one
  look_at_limit(name .. ' ' .. id .. ' held', now_ms + LATER_MS)
  redis.call('HDEL', key, 'wanted')
  settle_key(name) -- if it ran, it is one that has not started again
  return true
end

-- A job has finished, and the one behind it has begun in the same process: it has the slot from now on. `follower`: its
-- id and execution.
local function pass_slot_on(name, id, follower)
  local next_id, exec = string.match(follower, '^(%S+) (%S+)$')
  local status, now = unpack(redis.call('HMGET', job_key(next_id or ''), 'status', 'execution_id'))
  if status ~= 'started' or now ~= exec then return false end
  redis.call('ZADD', holders_key(name), '+inf', next_id)
  redis.call('ZREM', holders_key(name), id)
  return true
end

-- Locks of task code. A run that locks a name takes a slot of that key: neither a job of the key nor another lock has
-- it then. Of the runs that want a name's lock, in the order of `rq:limits:locks:<name>`, the first alone stands among
-- the holders of the key or in its line, where it is ahead of all jobs: it takes up a place in a worker.

-- The locks that a job's run has or waits for, three words each: name, the run with the call that wants it, and its
-- number, which is 0 while it waits.
local function locks_of(text)
  local found = {}
  for word in string.gmatch(text or '', '%S+') do found[#found + 1] = word end
  return found
end

local function write_locks(key, locks)
  local ties, has = tied[key] or '', locks[1] and 'l' or ''
  tied[key] = string.gsub(ties, 'l', '') .. has
  if locks[1] then
    redis.call('HSET', key, 'ties', tied[key], 'locks', table.concat(locks, ' '))
  elseif tied[key] ~= '' then
    redis.call('HSET', key, 'ties', tied[key])
    redis.call('HDEL', key, 'locks')
  else
    tied[key] = nil
    redis.call('HDEL', key, 'ties', 'locks')
  end
end

local function settle_lock(name)
  local first = redis.call('ZRANGE', locks_key(name), 0, 0)[1]
  if first and not redis.call('ZSCORE', holders_key(name), first) then
    redis.call('ZADD', queue_up_key(name), '512', first) -- above the place of any job
  end
  settle_key(name)
end

-- The caller takes it out of the job's own record.
local function free_lock(name, id)
  redis.call('ZREM', locks_key(name), id)
  redis.call('ZREM', holders_key(name), id)
  redis.call('ZREM', queue_up_key(name), id)
  settle_lock(name)
end

-- One of a run that goes on; false if it has no such lock. `call`: only if this call wants it.
local function drop_lock(name, id, key, call)
  local locks = locks_of(redis.call('HGET', key, 'locks'))
  for i = 1, #locks, 3 do
    if locks[i] == name and (not call or locks[i + 1] == call) then
      for _ = 1, 3 do table.remove(locks, i) end
      write_locks(key, locks)
      free_lock(name, id)
      return true
    end
  end
  return false
end

-- All of a run that is over, whatever happens to its job.
local function free_locks(id, key)
  if not string.find(tied[key], 'l', 1, true) then return end
  local locks = locks_of(redis.call('HGET', key, 'locks'))
  write_locks(key, {})
  for i = 1, #locks, 3 do pcall(free_lock, locks[i], id) end
end

-- It ends, or waits for something else: whoever is next gets the slot. `status`: of one that ends, what it is now.
local function leave_limit(id, key, status)
  local name, follower = key_alone[key], nil
  if not name then name, follower = unpack(redis.call('HMGET', key, 'concurrency_key', 'followed_by')) end
  if not name then return end
  arrivals[name] = nil
  stop_counting(name, id, key)
  if follower then
    redis.call('HDEL', key, 'followed_by')
    if status == 'finished' and pass_slot_on(name, id, follower) then return end
  end
  -- it stands in one of the two at most
  local stood = redis.call('ZREM', holders_key(name), id) == 1 or redis.call('ZREM', queue_up_key(name), id) == 1
  if stood then settle_key(name) end
end

-- An execution ended and the job keeps its slot: it waits in its queue again, or, lost more than once, for a time. One
-- whose slot was taken back asks for one.
local function return_to_limit(id, key, queue)
  local name = redis.call('HGET', key, 'concurrency_key')
  local score = name and redis.call('ZSCORE', ready_key(queue), id)
  if name then stop_counting(name, id, key) end
  if not score then return end
  if redis.call('ZSCORE', holders_key(name), id) then
    redis.call('ZADD', holders_key(name), place_in_key(key, queue, score), id)
    settle_key(name)
  else
    arrive_at_limit(id, key, queue)
  end
end

-- A job enters a queue by whatever way but a return: enqueued, due, requeued, taken over from another program, or back
-- from the sets of blocked jobs, if only to wait for its key. One that was lost and waited for its next try may arrive
-- though it never left, as may one that kept what it holds in those sets.
-- `named`: an enqueue brought it into being. True if it is blocked: it does not stand in the queue.
local function on_arrive(id, key, queue, named)
  if tied[key] then return arrive_at_limit(id, key, queue, named) end
end

-- A job leaves its queue, or its execution, and is to arrive again: it waits for a time, or for its task. One
-- that waits to run alone keeps what it holds, as does one that keeps its key's slot for a worker that has its task.
-- `how`: finished, of one whose run has, and that is to run again. Never fails what its job does: the audit finds what
-- is left.
local function on_leave(id, key, queue, how)
  if tied[key] then
    pcall(leave_limit, id, key, how)
    pcall(free_locks, id, key)
  end
end

-- An execution ends and its job keeps its place, and whatever it holds but locks: released, lost (over its pause
-- too), or tried again at once.
local function on_return(id, key, queue)
  if tied[key] then
    pcall(free_locks, id, key)
    if tied[key] then return_to_limit(id, key, queue) end
  end
end
