-- Gates in a turn: what those of its queues let through, who waits for the closed ones, and when a lower class is next.
-- INCLUDE: keys time rate score queue_gate
-- RARER: read_gates is_open is_shut note_start keep_gate overdue
-- Exports: gates opens
local gates = {} -- of those queues of this turn that have one, by the queue's index
local opens -- ms: the first instant at which one opens that this worker waits for
local FULL_MS, CLASSES, EVERY = 10000, 3, 10

-- Returns those that can't be read: {queue, error}; nothing is claimed from them.
local function read_gates(names, count)
  local broken = {}
  for first = 0, count - 1, 1000 do
    local asked = {}
    for i = first, math.min(count, first + 1000) - 1 do asked[#asked + 1] = names[i] end
    for k, text in ipairs(redis.pcall('HMGET', GATES, unpack(asked))) do
      if text then
        local ok, gate = pcall(read_gate, asked[k], text)
        if ok then
          gates[first + k - 1] = gate
        else
          broken[#broken + 1] = { asked[k], error_text(gate) }
          gates[first + k - 1] = { places = 0, tokens = 0, broken = true }
        end
      end
    end
  end
  return broken
end

-- Whether a job may be claimed from the queue; `ahead`: to wait behind others, which none does where starts or jobs are
-- counted.
local function is_open(i, ahead)
  local room = math.min(gates[i].places, gates[i].tokens)
  return room >= 1 and not (ahead and room < math.huge)
end

-- Whether the queue is closed for long enough that its place in a wildcard's index is better another's.
local function is_shut(i)
  local gate = gates[i]
  return not is_open(i) and (gate.places < 1 or (gate.opens or 0) - gate.at > AWAITED_MS * 1000)
end

local function note_start(i)
  local gate = gates[i]
  gate.places, gate.tokens, gate.started = gate.places - 1, gate.tokens - 1, gate.started + 1
end

-- After the claims. `head`: what waits in the queue; `spare`: the lowest priority of the slots that are still free.
-- What was used up is written down; if the queue is closed while jobs wait somebody waits too, or is woken that will.
-- Returns whether to ring.
local function keep_gate(i, queue, head, spare, claims)
  local gate, key, closed = gates[i], gate_key(queue), closed_key(queue)
  if gate.broken then return false end
  if gate.interval and gate.started > 0 then
    gate.tat = rate_spend(gate.tat, gate.at, gate.interval, gate.burst, gate.started)
    redis.call('HSET', key, 'tat', string.format('%.17g', gate.tat))
    local _, at = rate_room(gate.tat, gate.at, gate.interval, gate.burst)
    gate.opens = at
  end
  if gate.max_wait and claims > 0 then redis.call('HSET', key, 'claims', (tonumber(gate.claims) or 0) + claims) end
  if not head or is_open(i) then return redis.call('DEL', closed) == 1 and head end
  if gate.places < 1 then
    redis.call('SET', closed, 'limit', 'PX', FULL_MS)
    return false
  end
  local mine, wait = gate.waiter == A_name, math.max(1, math.ceil((gate.opens - gate.at) / 1000))
  if mine or not is_awaited(gate) then
    if not spare or head.class < spare then -- to another, which may find it open
      redis.call('HDEL', key, 'waiter', 'named')
      redis.call('DEL', closed)
      return true
    end
    redis.call('HSET', key, 'waiter', A_name, 'named', now_ms)
    opens = math.min(opens or wait, wait)
  end
  redis.call('SET', closed, 'rate', 'PX', wait)
  return false
end

-- At every tenth claim of workers that serve the queue: the best entry of a class below this one, if it has waited
-- longer than it may there.
local function overdue(i, queue, class, claims)
  local gate = gates[i]
  if not gate.max_wait or not is_open(i) then return nil end
  if ((tonumber(gate.claims) or 0) + claims + 1) % EVERY ~= 0 then return nil end
  local since = iso_before(gate.max_wait * 1000)
  for _ = 1, CLASSES do
    local found = redis.call('ZREVRANGEBYSCORE', ready_key(queue), '(' .. class, 0, 'WITHSCORES', 'LIMIT', 0, 1)
    if not found[1] then return nil end
    local enqueued, created = unpack(redis.pcall('HMGET', job_key(found[1]), 'enqueued_at', 'created_at'))
    class = class_of(found[2])
    if (enqueued or created or since) < since then
      return { id = found[1], class = class, score = tonumber(found[2]) }
    end
  end
end
