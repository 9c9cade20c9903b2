-- The event of a transition, numbered within an epoch so that a reader can tell a gap. Never fails the transition it reports.
local epoch

local function emit(event, id, queue, log_tag, ...)
  local meta = P .. 'events:meta'
  if not epoch then
    epoch = redis.pcall('HGET', meta, 'epoch')
    if type(epoch) ~= 'string' then
      epoch = string.format('%d%06d', now_s, now_us)
      redis.pcall('HSET', meta, 'epoch', epoch)
    end
  end
  local n = redis.pcall('HINCRBY', meta, 'n', 1)
  if type(n) ~= 'number' then return end
  redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', CAP, '*',
    'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch', epoch, 'n', n, ...)
end
