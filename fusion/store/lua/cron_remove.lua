-- cron_remove: forget a cron entry. Its jobs stay.
-- ARGV: entry
-- INCLUDE: writer keys cron
-- FLAGS: allow-oom
-- Returns: ok | missing
if redis.call('EXISTS', cron_entry_key(A_entry)) == 0 then return 'missing' end
forget_entry(A_entry)
return 'ok'
