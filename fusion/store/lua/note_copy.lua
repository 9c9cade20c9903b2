-- note_copy: a job names a copy that was made of it, the last ten of them.
-- KEYS: job
-- ARGV: copy
-- INCLUDE: writer
-- FLAGS: allow-oom
-- Returns: ok | missing | foreign (another program's job)
local job = redis.call('HMGET', K_job, 'status', 'seq', 'copied_to')
if not job[1] then return 'missing' end
if not job[2] and redis.call('HEXISTS', K_job, 'success_callback_name') == 1 then return 'foreign' end
local known = {}
for id in string.gmatch(string.sub(job[3] or '', 1, 2000), '%S+') do
  if id == A_copy then return 'ok' end
  known[#known + 1] = id
end
known[#known + 1] = A_copy
redis.call('HSET', K_job, 'copied_to', table.concat(known, ' ', math.max(1, #known - 9)))
return 'ok'
