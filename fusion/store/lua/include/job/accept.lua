-- A job comes into being: what `enqueue` does with each of its own, and `cron_tick` with a tick's.
-- INCLUDE: keys time count emit schedule score room ties limit end_job batch failures
-- RARER: field_of
-- Uses: gate_texts tied
-- Exports: discarded
local discarded -- ids of this call, if there are any

-- When a job is due (ms; nil: no time was given), whether it goes to the front, and its fair key, or nil. `place`:
-- back | front | `@ms` at that time | `+ms` so much later; an `f` behind it: to the front once it is due. Behind that
-- may stand `=` and the fair key.
local function due_of(place)
  local before, fair_key = string.match(place, '^([^=]*)=(.+)$')
  local sign, ms, front = string.match(before or place, '^([@+])(%d+)(f?)$')
  if not sign then return nil, (before or place) == 'front', fair_key end
  return sign == '+' and now_ms + ms or tonumber(ms), front == 'f', fair_key
end

-- The value of a field, of those from `first` to `last` in ARGV.
local function field_of(name, first, last)
  for i = first, last, 2 do
    if ARGV[i] == name then return ARGV[i + 1] end
  end
end

-- There is no record of this id, unless from a former life, or a draft. `seq`: a number kept for it; `ended`: the
-- terminal set it stands in from that life, empty for a draft; `first` to `last`: its fields in ARGV.
-- Returns whether it waits, for a time or for others, or was discarded; what is due already is queued. `deferred`: it
-- waits for others than those of its key, until it is released; its time and its ttl are looked at then. What `tied`
-- says of it already is added to its own ties.
local function accept(queue, id, priority, due, front, ttl, nonce, seq, ended, first, last, deferred)
  local key, later, more = job_key(id), deferred or due and due > now_ms, {}
  local status = deferred and 'deferred' or later and 'scheduled' or 'queued'
  -- index first: should the hash be refused, an entry without data is found and reported; data without an entry is not
  if deferred then
    redis.call('ZADD', set_of('deferred', queue), now_ms, id)
    more, seq, ttl = { 'arrival', seq }, '', false
    if due then more[3], more[4] = 'due', string.format('%d', due) end
  elseif later then
    schedule(id, due)
    more, seq = { 'arrival', seq }, ''
  elseif front then
    seq = -redis.call('INCR', P .. 'seq:front')
    enter_line(queue, score_of(queue, priority, seq), id)
  else
    line_up(queue, id, priority, seq)
  end
  -- all that it holds goes; not by DEL, which those who only enqueue need not be allowed: it takes whole queues as well
  if ended then
    if ended == FAILED then pcall(leave_failure, id, key) end
    local names = redis.call('HKEYS', key)
    for i = 1, #names, 1000 do redis.call('HDEL', key, unpack(names, i, math.min(i + 999, #names))) end
  end
  -- a compact record, which holds nothing that equals its default or another field
  if ARGV[first] == 'func' then
    if priority ~= '1' then more[#more + 1], more[#more + 2] = 'priority', priority end
    if nonce ~= id then more[#more + 1], more[#more + 2] = 'nonce', nonce end
  else
    more[#more + 1], more[#more + 2], more[#more + 3], more[#more + 4] = 'original_queue', queue, 'enqueued_at', now_iso
    more[#more + 1], more[#more + 2], more[#more + 3], more[#more + 4] = 'priority', priority, 'nonce', nonce
  end
  if later and front then more[#more + 1], more[#more + 2] = 'at_front', 1 end
  if ttl == nil and (gate_texts[queue] ~= false or QUEUE_TIMEOUT > 0) then
    ttl = timeout_of(queue)
    if ttl then more[#more + 1], more[#more + 2] = 'queue_timeout', ttl end
  end
  local expires_at = ttl and string.format('%d', (later and due or now_ms) + ttl)
  if expires_at and not more[1] then
    redis.call('HSET', key, 'status', status, 'origin', queue, 'created_at', now_iso, 'seq', seq, 'expires_at',
      expires_at, unpack(ARGV, first, last))
  elseif more[1] then
    if expires_at then more[#more + 1], more[#more + 2] = 'expires_at', expires_at end
    local all, n = { unpack(ARGV, first, last) }, last - first + 1
    for j = 1, #more do all[n + j] = more[j] end
    redis.call('HSET', key, 'status', status, 'origin', queue, 'created_at', now_iso, 'seq', seq, unpack(all))
  else
    redis.call('HSET', key, 'status', status, 'origin', queue, 'created_at', now_iso, 'seq', seq,
      unpack(ARGV, first, last))
  end
  if ttl then
    redis.pcall('ZADD', EXPIRING, expires_at, id)
  end
  if ended and ended ~= '' then redis.call('ZREM', ended, id) end
  local log_tag, known = nil, tied[key]
  for j = first, last, 2 do
    if ARGV[j] == 'log_tag' then
      log_tag = ARGV[j + 1]
    elseif ARGV[j] == 'ties' then
      tied[key] = ARGV[j + 1] .. (known or '')
    end
  end
  if known then redis.call('HSET', key, 'ties', tied[key]) end
  if tied[key] and string.find(tied[key], 'b', 1, true) then
    join_batch(field_of('batch', first, last), id, field_of('batch_as', first, last))
  end
  tally('enqueued', queue, priority, tied[key] and counters_of_key(key, field_of('concurrency_key', first, last)))
  if deferred then
    emit('deferred', id, queue, log_tag, 'priority', priority)
  elseif later then
    emit('scheduled', id, queue, log_tag, 'priority', priority, 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
  else
    emit('queued', id, queue, log_tag, 'priority', priority)
    local way = on_arrive(id, key, queue, true)
    if way == DISCARD then
      discard(id, key, queue, log_tag)
      discarded = discarded or {}
      discarded[#discarded + 1] = id
    end
    if way then return true end
  end
  return later
end
