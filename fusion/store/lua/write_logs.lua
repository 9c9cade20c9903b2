-- write_logs: the last lines that runs of jobs printed and logged, each in place of what the log of its job had.
-- ARGV: n_jobs
-- INCLUDE: keys time lines
-- Rest: per job: id execution attempt left_out lines. `lines`: the text, each line with its ms since 1970 before it;
--   without any the log goes
-- Returns: an answer per job: ok | stale (another execution holds it) | missing | error: why (a broken key)
-- A resend writes the same again. The log lasts as long as its job's record.
local function write(id, exec, attempt, left_out, lines)
  local key, log = job_key(id), log_key(id)
  local status, holder = unpack(redis.call('HMGET', key, 'status', 'execution_id'))
  if status and holder and holder ~= exec then return 'stale' end
  if not status or lines == '' then
    drop_log(id)
    return status and 'ok' or 'missing'
  end
  redis.call('ZADD', LOGS, now_ms, id)
  local was = tonumber(redis.call('HGET', LOG_SIZES, id)) or 0
  local size = #lines + LOG_OVERHEAD
  redis.call('HSET', LOG_SIZES, id, size)
  local total = redis.call('HINCRBY', LOG_SIZES, '*', size - was)
  redis.call('HSET', log, 'lines', lines, 'left_out', left_out, 'attempt', attempt, 'at', now_ms)
  local ttl = redis.call('PTTL', key)
  if ttl > 0 then redis.call('PEXPIRE', log, ttl) else redis.call('PERSIST', log) end
  drop_oldest_logs(total)
  return 'ok'
end

local answers = {}
for i = 1, tonumber(A_n_jobs) do
  local ok, answer = pcall(write, unpack(ARGV, REST + 5 * i - 5, REST + 5 * i - 1))
  answers[i] = ok and answer or 'error: ' .. error_text(answer)
end
return answers
