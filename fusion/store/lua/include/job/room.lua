-- The room that a queue has for jobs, and how long they may wait in it: what is set for the queue, else the settings.
-- INCLUDE: keys gate
-- RARER: timeout_of most_of length_of

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
