-- The outbox of callbacks. When a job ends, a delivery for each URL that is to be called becomes a job of its own in
-- the queue `_callbacks`, in the same call: a crash can't come between. The courier serves that queue; whatever
-- happens to a delivery never changes the job.
-- INCLUDE: keys time count ring score limit
-- RARER: mark_hooks is_full accept_delivery tell_ended
-- Exports: hooked
local hooked = {} -- keys of jobs read in this call that have URLs: no other job pays for this
-- seconds; less than failed jobs', so that in a full set deliveries give way to jobs
local DELIVERED_TTL, UNDELIVERED_TTL = 86400, 604800

-- What no Fusion producer wrote has no mark that it has URLs.
local function mark_hooks(key)
  local urls = redis.call('HMGET', key, 'success_task_handler', 'failed_task_handler', 'callback_url')
  if urls[1] or urls[2] or urls[3] then redis.call('HSET', key, 'hooks', 1) end
end

-- The deliveries that have not ended, by the time they were accepted. Too many, and new ones are refused: those that
-- wait were promised, to refuse costs the same however many wait, and what is dropped is reported. What lost
-- its entry otherwise goes by its age.
local OPEN, LONGEST_LIFE = P .. 'callbacks:open', 7 * 86400
local function is_full()
  if redis.call('ZCARD', OPEN) < CALLBACKS_MAX then return false end
  local old = redis.call('ZRANGEBYSCORE', OPEN, '-inf', now_s - LONGEST_LIFE, 'LIMIT', 0, 100)
  if old[1] then redis.call('ZREM', OPEN, unpack(old)) else redis.call('INCR', P .. 'callbacks:refused') end
  return not old[1]
end

-- The courier signs what it sends. The seal tells it that a script wrote this: who only enqueues can't read the
-- secret. Sealed twice, as SHA-1 alone would let others write on.
local SEAL = P .. 'callbacks:secret'

-- The id is sent along and tells a receiver what it has had already. Number and time: after a loss of the last second
-- a number may come again.
local function accept_delivery(message)
  if is_full() then return end
  local seq = next_seq()
  local id = string.format('cb-%d%06d-%d', now_s, now_us, seq)
  local key = job_key(id)
  local said = cjson.encode(message)
  local secret = redis.pcall('GET', SEAL)
  local seal = type(secret) == 'string' and '"' .. redis.sha1hex(secret .. redis.sha1hex(secret .. id .. said)) .. '"'
      or ''
  redis.call('SADD', QUEUES, queue_key('_callbacks'))
  redis.call('ZADD', queue_key('_callbacks'), score_of('_callbacks', 1, seq), id)
  redis.call('HSET', key, 'status', 'queued', 'origin', '_callbacks', 'original_queue', '_callbacks', 'created_at',
    now_iso, 'enqueued_at', now_iso, 'priority', 1, 'seq', seq, 'description', 'callback of ' .. message.job_id,
    'on_lost', 'again', 'result_ttl', DELIVERED_TTL, 'failure_ttl', UNDELIVERED_TTL,
    'data', '["fusion.courier.deliver",null,[' .. seal .. '],' .. said .. ']')
  meet(nil, nil, nil, '_callbacks', 1)
  redis.call('ZADD', OPEN, now_s, id)
  on_arrive(id, key, '_callbacks')
  ring('_callbacks', 1)
  return id
end

-- Accepts the deliveries of a job that has just ended. Never fails that end; what could not be accepted is counted.
local function tell_ended(id, key, queue, status)
  local success, failure, url, data, log_tag, attempts, ended_at, class, reason, func = unpack(redis.call('HMGET', key,
    'success_task_handler', 'failed_task_handler', 'callback_url', 'data', 'log_tag', 'attempts', 'ended_at',
    'error_class', 'reason', 'func'))
  if class == 'fusion.exceptions.BadSignature' then return end -- its URLs may be anyone's
  if status == 'canceled' and reason == 'expired' then status = reason end
  local told = {}
  local own = status == 'finished' and success or (status == 'failed' or status == 'expired') and failure
  for i, target in ipairs({ own or '', url or '' }) do
    if target ~= '' and (i == 1 or target ~= own) then
      local ok, delivery = pcall(accept_delivery, { url = target, job_id = id, queue = queue, status = status,
        log_tag = log_tag or nil,
        task = string.match(func or '', '^[%w_.]+$') or string.match(data or '', '^%["([%w_.]+)"'),
        attempts = tonumber(attempts) or 0, ended_at = ended_at or now_iso,
        error = status == 'failed' and class or nil })
      if not ok then redis.pcall('INCR', P .. 'callbacks:dropped') end
      told[#told + 1] = ok and delivery or nil
    end
  end
  if told[1] then redis.call('HSET', key, 'told', table.concat(told, ' ')) end
end
