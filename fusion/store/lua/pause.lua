-- pause: let no worker claim a job of a queue, for a time or until `unpause`.
-- ARGV: queue ms by reason
-- INCLUDE: writer keys time
-- FLAGS: allow-oom
-- Returns: since when it is paused
-- One that is paused gets another end and reason, and stays paused since the first time. Whatever else stands there,
-- set by hand, is a pause too.
local key = paused_key(A_queue)
local was = redis.pcall('GET', key)
local since = type(was) == 'string' and string.match(was, '^(%S+Z) ') or now_iso
local value = since .. ' ' .. A_by .. '\n' .. A_reason
if A_ms == '' then redis.call('SET', key, value) else redis.call('SET', key, value, 'PX', A_ms) end
return since
