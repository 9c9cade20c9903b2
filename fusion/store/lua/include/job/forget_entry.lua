-- A cron entry goes. Its mark stays, so that an entry of that id never runs a tick twice; marks of entries long gone
-- are cleared, some at a time.
-- INCLUDE: cron_keys time
local OLD = 400 * 86400

local function forget_entry(entry)
  redis.call('ZREM', CRON_DUE, entry)
  redis.call('DEL', cron_entry_key(entry), cron_history_key(entry))
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', CRON_MARKS, '-inf', now_s - OLD, 'LIMIT', 0, 20)) do
    if redis.call('EXISTS', cron_entry_key(other)) == 0 then redis.call('ZREM', CRON_MARKS, other) end
  end
end
