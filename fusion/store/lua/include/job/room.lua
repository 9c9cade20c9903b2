-- The room that a queue has for jobs, and how long they may wait in it: what is set for the queue, else the settings.
-- INCLUDE: keys
-- RARER: timeout_of most_of length_of gate_value gate_of
-- Exports: gate_texts

-- What is set for single queues: `rq:gates` holds, by queue, texts `name=value` with a space between, times in ms. The
-- key exists only while something is set. fusion/store/layout/gates.py is the other half of this table.
local gate_texts = {} -- texts by queue, as far as this call has looked; false: nothing is set

-- All that is set for the queue. For a user who may not read the key nothing is.
local function gate_of(queue)
  if gate_texts[queue] == nil then
    local text = redis.pcall('HGET', GATES, queue)
    gate_texts[queue] = type(text) == 'string' and text
  end
  return gate_texts[queue]
end

-- A value of such a text, as text; nil if it is not set.
local function gate_value(text, name) return text and string.match(' ' .. text, ' ' .. name .. '=(%S+)') or nil end

-- ms after which a job of the queue that has no ttl expires; nil for never.
local function timeout_of(queue)
  local ms = tonumber(gate_value(gate_of(queue), 'timeout')) or QUEUE_TIMEOUT
  return ms > 0 and ms or nil
end

-- How many jobs may wait in the queue; nil for any number. `own`: what the call says, which can only be less.
local function most_of(queue, own)
  local most = tonumber(gate_value(gate_of(queue), 'max_length')) or MAX_LENGTH
  own = tonumber(own)
  if most <= 0 then return own end
  return own and math.min(own, most) or most
end

-- How many wait there, those that wait for something other than a time included.
local function length_of(queue)
  local length = redis.call('ZCARD', ready_key(queue)) + redis.call('ZCARD', P .. 'blocked:' .. queue)
  if not is_list(queue) then return length end
  -- in its inbox; less what leads to no job any more, and one entry that counts
  return length + redis.call('LLEN', queue_key(queue)) - math.max(0, redis.call('ZCARD', inbox_key(queue)) - 1)
end
