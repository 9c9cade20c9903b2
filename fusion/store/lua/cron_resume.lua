-- cron_resume: the ticks of an entry run again, from now on.
-- KEYS: entry due marks
-- ARGV: id
-- INCLUDE: writer time schedule
-- FLAGS: allow-oom
-- Returns: ok | running (it was not paused) | missing
-- Also the way out for an entry that waits for a mark in the future, after the clock was set back: pause, and resume.
if redis.call('EXISTS', K_entry) == 0 then return 'missing' end
if redis.call('HDEL', K_entry, 'paused') == 0 then return 'running' end
redis.call('ZADD', K_marks, now_s, A_id)
if redis.call('HEXISTS', K_entry, 'plan') == 1 then redis.call('ZADD', K_due, now_s, A_id) end
ring_scheduler()
return 'ok'
