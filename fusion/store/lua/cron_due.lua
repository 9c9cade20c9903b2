-- cron_due: the entries that are to be looked at now. Changes nothing.
-- KEYS: due marks
-- ARGV: limit
-- INCLUDE: keys time
-- Returns: {now in ms, ms to the next look or -1, {entry, mark, plan, spec, rev}...}
local rows = {}
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', K_due, '-inf', now_ms / 1000, 'LIMIT', 0, A_limit)) do
  local found = redis.pcall('HMGET', cron_entry_key(entry), 'plan', 'spec', 'rev')
  rows[#rows + 1] = { entry, redis.call('ZSCORE', K_marks, entry) or '', found[1] or '', found[2] or '',
    found[3] or '' }
end
local first = redis.call('ZRANGEBYSCORE', K_due, '(' .. string.format('%.3f', now_ms / 1000), '(+inf', 'WITHSCORES',
    'LIMIT', 0, 1)
return { now_ms, first[2] and math.max(0, math.ceil(tonumber(first[2]) * 1000 - now_ms)) or -1, rows }
