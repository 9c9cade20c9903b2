-- The event of a transition, numbered within an epoch so that a reader can tell a gap. Never fails the transition it
-- reports. How many are kept: what this process was told, unless a relay with sinks has asked for more; whoever writes
-- must not trim what they need.
-- INCLUDE: time
-- Exports: expected
local meta, epoch, cap, number, reserved = P .. 'events:meta', nil, CAP, 0, 0
local expected = 1 -- events to come, at most; who says more gives back what it did not use

-- Numbers for exactly so many events to come, in one go.
local function reserve(count)
  if not epoch then
    local found = redis.pcall('HMGET', meta, 'epoch', 'cap', 'cap_until')
    epoch = found[1]
    if (tonumber(found[2]) or 0) >= 1 and now_s < (tonumber(found[3]) or 0) then cap = found[2] end
    if type(epoch) ~= 'string' then
      epoch = string.format('%d%06d', now_s, now_us)
      redis.pcall('HSET', meta, 'epoch', epoch)
    end
  end
  -- Redis writes a number out as a fraction, which takes longer than all else that it does here
  local last = redis.pcall('HINCRBY', meta, 'n', count == 1 and '1' or count)
  if type(last) == 'number' then number, reserved = last - count, count end
end

local function give_back_numbers()
  if reserved > 0 then redis.pcall('HINCRBY', meta, 'n', -reserved) end
  reserved = 0
end

local function emit(event, id, queue, log_tag, ...)
  if queue == '_callbacks' then return end -- a delivery's own steps are none of a job
  if reserved == 0 then reserve(expected) end
  if reserved == 0 then return end
  number, reserved = number + 1, reserved - 1
  redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', cap, '*',
    'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch', epoch, 'n', string.format('%d',
        number), ...)
end
