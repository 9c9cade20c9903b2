-- Gates: what bounds the claims of a queue as a whole, over the fleet. `rq:gates` says what is set, `limit=20
-- rate=100/60000/100 max_wait=<ms> until=<ms>`; the state is in `rq:gate:<queue>`. No job is moved for a gate's sake: a
-- closed queue is one from which nothing is claimed. While it is closed and somebody will open it
-- `rq:wake:<queue>:closed` exists, and its bells are silent: at its limit whoever ends one of its jobs rings, else one
-- idle worker waits for the instant.
-- INCLUDE: keys time rate ring
-- RARER: gate_word held_until without_until forget_until hold_back read_gate
-- RARER: is_awaited reopen reopen_all hand_on
local function gate_key(queue) return P .. 'gate:' .. queue end
local LONGEST_MS = 86400000
local AWAITED_MS = 3000 -- a worker that waits reports it again this often, or is taken for gone

-- What is set under a name; nil if nothing is.
local function gate_word(text, name) return string.match(' ' .. text, ' ' .. name .. '=(%S+)') end

-- The instant until which a task has it held back, if that is to come. One that no task could ask for is of a clock
-- that was set back since.
local function held_until(text)
  local ms = tonumber(gate_word(text, 'until'))
  return ms and ms > now_ms and ms <= now_ms + LONGEST_MS and ms or nil
end

local function without_until(text) return string.match(string.gsub(' ' .. text, ' until=%S+', ''), '^ ?(.*)$') end

-- A provider asked a task to stay away: nothing of its queue starts before that instant (ms).
local function hold_back(queue, ms)
  local text = redis.call('HGET', GATES, queue) or ''
  local known = held_until(text)
  if known and known >= ms then return end
  local rest = without_until(text)
  redis.call('HSET', GATES, queue, (rest == '' and '' or rest .. ' ') .. string.format('until=%d', ms))
end

-- A queue that was held back for a time is not any more.
local function forget_until(queue, text)
  local rest = without_until(text)
  if rest == '' then redis.call('HDEL', GATES, queue) else redis.call('HSET', GATES, queue, rest) end
end

-- How many jobs may be claimed now: for its limit (`places`), for its rate (`tokens`); if there are no tokens, the
-- instant at which there will be (`opens`). Times in microseconds. nil if nothing that is set is about claims.
local function read_gate(queue, text)
  local limit, interval, burst = tonumber(gate_word(text, 'limit')), rate_of(gate_word(text, 'rate'))
  local max_wait, held_back = tonumber(gate_word(text, 'max_wait')), held_until(text)
  if not held_back and gate_word(text, 'until') then forget_until(queue, text) end
  if not (limit or interval or max_wait or held_back) then return nil end
  local gate = { at = now_s * 1000000 + now_us, places = math.huge, tokens = math.huge, started = 0,
    interval = interval, burst = burst, max_wait = max_wait }
  gate.tat, gate.waiter, gate.named, gate.claims = unpack(redis.call('HMGET', gate_key(queue), 'tat', 'waiter', 'named',
      'claims'))
  if limit then gate.places = limit - redis.call('ZCOUNT', wip_key(queue), LEAST_LEASE, '(+inf') end
  if interval then gate.tokens, gate.opens = rate_room(gate.tat, gate.at, interval, burst) end
  if held_back then gate.tokens, gate.opens = 0, math.max(gate.opens or 0, held_back * 1000) end
  return gate
end

-- Whether a worker waits for the instant at which the queue opens.
local function is_awaited(gate)
  local age = now_ms - (tonumber(gate.named) or -AWAITED_MS)
  return gate.waiter and age >= 0 and age < AWAITED_MS
end

-- One of its jobs has ended, or what is set was `changed`: unless the queue stays closed, and somebody knows when it
-- opens, one worker is woken that looks.
local function reopen(queue, changed)
  local text = redis.call('HGET', GATES, queue)
  local gate = text and read_gate(queue, text)
  if gate and (gate.places < 1 or gate.tokens < 1 and not changed and is_awaited(gate)) then return end
  if changed then redis.call('HDEL', gate_key(queue), 'waiter', 'named') end
  if redis.call('DEL', closed_key(queue)) == 0 and not changed then return end
  if redis.call('EXISTS', ready_key(queue), queue_key(queue)) > 0 then ring(queue) end
end

-- Executions of these queues (a set) have ended outside a turn.
local function reopen_all(queues)
  local gated
  for queue in pairs(queues) do
    if gated == nil then gated = redis.call('EXISTS', GATES) == 1 end
    if gated then pcall(reopen, queue) end
  end
end

-- These workers (a set) wait for no closed queue any more: for each that one waited for, another gets a token.
local function hand_on(names)
  for _, queue in ipairs(redis.pcall('HKEYS', GATES)) do
    if names[redis.pcall('HGET', gate_key(queue), 'waiter')] then
      redis.call('HDEL', gate_key(queue), 'waiter', 'named')
      pcall(reopen, queue, true)
    end
  end
end
