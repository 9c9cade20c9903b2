-- A job with a unique key is to come into being: which job it meets, and what happens to either.
-- INCLUDE: keys time unique end_job inbox expiry emit ties accept states
-- RARER: unique_of meets view_of end_replaced accept_unique
-- Uses: tied
local SHOWN = 1048576 -- bytes of arguments and meta of others' jobs that one call answers

-- What the fields from `first` to `last` in ARGV say of a unique key; nil without one.
local function unique_of(first, last)
  local said = {}
  for i = first, last, 2 do said[ARGV[i]] = ARGV[i + 1] end
  if not said.unique_key then return nil end
  return { name = said.unique_key, upto = said.unique_until, window = said.unique_window, ties = said.ties or '',
    way = said.on_duplicate or 'skip', max_delay = tonumber(said.max_delay) }
end

-- Whether somebody has the key: nil, or `unique` with the `owner`, its `status`, and what is to be done: `way`, which
-- is `replace` only if the other waits; `room`: it does so in this queue. `own`: ids by key of those that this call
-- brings.
local function meets(unique, own, queue)
  local owner, status, passed = owner_of(unique.name)
  if own and own[unique.name] then owner, status, passed = own[unique.name], 'queued', false end
  if not owner then return nil end
  unique.owner, unique.status = owner, status
  if unique.way == 'replace' then
    local waits = status == 'queued' or status == 'scheduled' or status == 'blocked' or status == 'deferred'
    local upto, origin = unpack(redis.call('HMGET', job_key(owner), 'unique_until', 'origin'))
    if not waits or passed and upto ~= 'accept' then unique.way = 'skip' end
    unique.room = (status == 'queued' or status == 'blocked') and (origin or queue) == queue
  end
  return unique
end

-- What a caller that met a job learns of it: pairs of its fields; without arguments once that was much.
local told = 0
local function view_of(id)
  local names = { 'status', 'origin', 'original_queue', 'priority', 'created_at', 'enqueued_at', 'started_at',
    'ended_at', 'func', 'description', 'timeout', 'result_ttl', 'serializer', 'log_tag', 'unique_key',
    'concurrency_key', 'attempts', 'retryCount', 'reason', 'data', 'meta' }
  local values = redis.pcall('HMGET', job_key(id), unpack(names))
  local pairs_of = {}
  for i = 1, told < SHOWN and #names or #names - 2 do
    local value = values[i]
    if value then
      pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = names[i], value
      if i > #names - 2 then told = told + #value end
    end
  end
  return pairs_of
end

-- A newer one has the key. No URL is called: the caller of the newer one gets the answer.
local function end_replaced(id, by)
  local key = job_key(id)
  local status, queue, class, log_tag, expires, ties, set = unpack(redis.call('HMGET', key, 'status', 'origin',
      'priority', 'log_tag', 'expires_at', 'ties', 'waits_in'))
  if ties then tied[key] = ties end
  if is_list(queue) and not is_elsewhere(status) and not redis.call('ZSCORE', fifo_key(queue), id) then
    strike(queue, id)
  end
  end_job(id, key, queue, class, 'canceled', CANCELED_TTL, set_of(status, queue), 'ended_at', now_iso, 'reason',
    'replaced', 'replaced_by', by)
  if set then
    local limit = string.match(set, '^limit:(.*)')
    redis.pcall('ZREM', limit and queue_up_key(limit) or P .. 'waits:' .. set, id)
    redis.call('HDEL', key, 'waits_in')
  end
  forget_expiry(id, expires)
  emit('canceled', id, queue, log_tag, 'reason', 'replaced')
end

-- `accept`, of a job that may have the key. One that takes another's place stands where that stood, if they wait for
-- their turn in the same line; a time to wait for begins anew, and ends no later than `max_delay` after the first of
-- the series came.
local function accept_unique(unique, queue, id, priority, due, front, ttl, nonce, seq, ended, first, last, deferred)
  local older, began, upto, window = unique.way == 'replace' and owner_of(unique.name), now_ms, nil, nil
  if older then
    local status, origin, class, place, since
    status, origin, class, place, since, upto, window = unpack(redis.call('HMGET', job_key(older), 'status', 'origin',
        'priority', 'seq', 'unique_since', 'unique_until', 'unique_window'))
    began = tonumber(since) or now_ms
    if due and unique.max_delay then due = math.min(due, began + unique.max_delay) end
    local lined_up = status == 'queued' or status == 'blocked'
    local same_line = lined_up and origin == queue and (class or '1') == priority and not front and not deferred
    if same_line then seq = tonumber(place) or seq end
    -- it must not find the other's slot taken by the one that it replaces
    if string.find(unique.ties, 'd', 1, true) then end_replaced(older, id) end
  end
  take_key(unique.name, id, unique.upto, unique.window)
  local ok, later = pcall(accept, queue, id, priority, due, front, ttl, nonce, seq, ended, first, last,
      deferred)
  if not ok then
    if older then
      take_key(unique.name, older, upto, window)
    else
      redis.call('PEXPIRE', unique_key(unique.name), 0)
      redis.call('ZREM', UNIQUES, unique.name)
    end
    error(later, 0)
  end
  if unique.max_delay then redis.call('HSET', job_key(id), 'unique_since', string.format('%d', began)) end
  if older then
    redis.call('HSET', job_key(id), 'replaces', older)
    unique.replaced = older
    if not string.find(unique.ties, 'd', 1, true) then end_replaced(older, id) end
  end
  return later
end
