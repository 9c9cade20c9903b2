-- report: how far running jobs are, as their processes say: what people are shown, and where a next run goes on.
-- ARGV: worker n_jobs
-- FLAGS: allow-oom
-- INCLUDE: keys emit
-- Uses: expected
-- Rest: per job: id execution progress cursor said; empty: nothing new. `said`: what the event tells; without it
--   there is none
-- Returns: an answer per job: ok | stale (another execution or none holds it) | error: why (a broken key)
-- Events: progress
-- A cursor that moved ends the count of losses: the job gets somewhere, whatever happens to its workers.
local function report(id, exec, progress, cursor, said)
  local key = job_key(id)
  local status, holder, queue, log_tag, reached, shown, lost = unpack(redis.call('HMGET', key, 'status', 'execution_id',
      'origin', 'log_tag', 'cursor', 'progress', 'lost'))
  if status ~= 'started' or holder ~= exec then return 'stale' end
  local fields = {}
  if cursor ~= '' and cursor ~= reached then
    fields = { 'cursor', cursor }
    if lost and lost ~= '0' then fields = { 'cursor', cursor, 'lost', 0 } end
    redis.call('HDEL', key, 'spared')
  end
  local news = progress ~= '' and progress ~= shown
  if news then fields[#fields + 1], fields[#fields + 2] = 'progress', progress end
  if fields[1] then redis.call('HSET', key, unpack(fields)) end
  if news and said ~= '' then emit('progress', id, queue, log_tag, 'worker', A_worker, 'message', said) end
  return 'ok'
end

local answers, count = {}, tonumber(A_n_jobs)
expected = 0
for i = 1, count do
  if ARGV[REST + 5 * i - 1] ~= '' then expected = expected + 1 end
end
for i = 1, count do
  local ok, answer = pcall(report, unpack(ARGV, REST + 5 * i - 5, REST + 5 * i - 1))
  answers[i] = ok and answer or 'error: ' .. error_text(answer)
end
give_back_numbers()
return answers
