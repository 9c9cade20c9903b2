-- The event of a transition, numbered within an epoch so that a reader can tell a gap. Never fails the transition it reports.
local epoch, number, reserved = nil, 0, 0

-- Numbers for exactly so many events to come, in one go.
local function reserve(count)
  local meta = P .. 'events:meta'
  if not epoch then
    epoch = redis.pcall('HGET', meta, 'epoch')
    if type(epoch) ~= 'string' then
      epoch = string.format('%d%06d', now_s, now_us)
      redis.pcall('HSET', meta, 'epoch', epoch)
    end
  end
  local last = redis.pcall('HINCRBY', meta, 'n', count)
  if type(last) == 'number' then number, reserved = last - count, count end
end

local function emit(event, id, queue, log_tag, ...)
  if reserved == 0 then reserve(1) end
  if reserved == 0 then return end
  number, reserved = number + 1, reserved - 1
  redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', CAP, '*',
    'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch', epoch, 'n', number, ...)
end
