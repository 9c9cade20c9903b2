-- The event of a transition, numbered within an epoch so that a reader can tell a gap. Never fails the transition it
-- reports. How many are kept: the setting of this process, or more if a relay with sinks needs more: a writer must not
-- trim these. Redis frees whole blocks of entries at a time, so only one event in TRIM_EVERY trims.
-- INCLUDE: time
-- ONCE: events_cap
-- Exports: expected
local TRIM_EVERY, EVENTS, EVENTS_META = 16, P .. 'events', P .. 'events:meta'
local epoch, cap, number, reserved = nil, nil, 0, 0
local expected = 1 -- events to come, at most; who says more gives back what it did not use

-- Numbers for exactly this many events to come, in one go.
local function reserve(count)
  if not epoch then
    epoch = redis.pcall('HGET', EVENTS_META, 'epoch')
    if type(epoch) ~= 'string' then
      epoch = string.format('%d%06d', now_s, now_us)
      redis.pcall('HSET', EVENTS_META, 'epoch', epoch)
    end
  end
  -- Redis writes a number out as a fraction, which takes longer than all else that it does here
  local last = redis.pcall('HINCRBY', EVENTS_META, 'n', count == 1 and '1' or count == 2 and '2' or count)
  if type(last) == 'number' then number, reserved = last - count, count end
end

local function give_back_numbers()
  if reserved > 0 then redis.pcall('HINCRBY', EVENTS_META, 'n', -reserved) end
  reserved = 0
end

-- How many entries are to stay.
local function events_cap()
  if not cap then
    local asked, upto = unpack(redis.pcall('HMGET', EVENTS_META, 'cap', 'cap_until'))
    cap = (tonumber(asked) or 0) >= 1 and now_s < (tonumber(upto) or 0) and asked or CAP
  end
  return cap
end

local function emit(event, id, queue, log_tag, ...)
  if queue == '_callbacks' then return end -- a delivery's own steps are none of a job
  if reserved == 0 then
    reserve(expected)
  end
  if reserved == 0 then return end
  number, reserved = number + 1, reserved - 1
  local n = string.format('%d', number)
  if number % TRIM_EVERY == 0 then
    local most = events_cap()
    redis.pcall('XADD', EVENTS, 'MAXLEN', '~', most, '*', 'event', event, 'job_id', id, 'queue', queue,
      'log_tag', log_tag or '', 'epoch', epoch, 'n', n, ...)
  else
    redis.pcall('XADD', EVENTS, '*', 'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch',
      epoch, 'n', n, ...)
  end
end
