-- Gates: what bounds a queue as a whole, over the fleet. `rq:gates` holds a text for each queue of which something is
-- set, `limit=20 rate=100/60000/100 until=<ms>`; the state of such a queue is in `rq:gate:<queue>`. No job is moved
-- for a gate's sake: a closed queue is one from which nothing is claimed. While it is closed and somebody will open it
-- `rq:wake:<queue>:closed` exists, and its bells are silent: at its limit whoever ends one of its jobs rings, at its
-- rate one idle worker waits for the instant.
-- INCLUDE: keys time rate ring
-- RARER: gate_word read_gate reopen
local function gate_key(queue) return P .. 'gate:' .. queue end

-- What is set under a name; nil if nothing is.
local function gate_word(text, name) return string.match(' ' .. text, ' ' .. name .. '=(%S+)') end

local NOW = now_s * 1000000 + now_us -- in microseconds, as rates count

-- How many jobs of the queue may be claimed now (`room`). Without room it is `full`, or `opens` at an instant.
local function read_gate(queue, text)
  local limit, interval, burst = tonumber(gate_word(text, 'limit')), rate_of(gate_word(text, 'rate'))
  local held_back, room = (tonumber(gate_word(text, 'until')) or 0) * 1000, math.huge
  local gate = { text = text, interval = interval, burst = burst, held_back = held_back > 0 }
  gate.tat, gate.waiter, gate.named = unpack(redis.call('HMGET', gate_key(queue), 'tat', 'waiter', 'named'))
  if limit then room = math.max(0, limit - redis.call('ZCOUNT', wip_key(queue), LEAST_LEASE, '(+inf')) end
  gate.full = room <= 0
  if interval then
    local tokens, opens = rate_room(gate.tat, NOW, interval, burst)
    if tokens < 1 then gate.opens = opens end
    room = math.min(room, tokens)
  end
  if held_back > NOW then room, gate.opens = 0, math.max(gate.opens or 0, held_back) end
  gate.room = math.max(0, room)
  return gate
end

-- What closed a queue is over, or may be: nobody waits for it any more, and one worker is woken that finds out.
local function reopen(queue)
  local text = redis.call('HGET', GATES, queue)
  if text and read_gate(queue, text).full then return end
  redis.call('DEL', closed_key(queue))
  redis.call('HDEL', gate_key(queue), 'waiter', 'named')
  if redis.call('EXISTS', ready_key(queue), queue_key(queue)) > 0 then ring(queue) end
end
