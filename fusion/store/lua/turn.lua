-- turn: commit outcomes, then claim the next jobs for the free slots. The worker's only hot call.
-- KEYS: worker suspended
-- ARGV: name incarnation token lease_ms worker_ttl n_outcomes n_queues n_slots
-- FLAGS: allow-oom
-- INCLUDE: keys time score emit ring end_job settle commit claim
-- Rest: outcomes (kind id execution elapsed_us age_us delay_ms reason n_pairs pairs...), queues, a priority floor per free slot
-- Returns: {status, answers, jobs, bad, again, next_ms}; status ok | suspended | unregistered | outdated;
--   jobs: {queue, id, execution, values of RUN_FIELDS...}; bad: {queue, error}; next_ms: ms to the next due job, -1 for none
-- Events: completed failed retry held released abandoned canceled processing expired
-- A token answers twice alike: the worker's hash keeps what the last one answered (a line per outcome) and was given (a line per job).
local STEPS = 20 -- entries that are no work (stale, expired, corrupt) cleared per call
local BEAT_MS = math.min(1000, A_lease_ms / 10) -- a turn is a sign of life, written down this often at most
local state = redis.call('HMGET', K_worker, 'incarnation', 'token', 'answers', 'given', 'beat_ms', 'successful_job_count',
  'failed_job_count', 'total_working_us')
if state[1] ~= A_incarnation then return { 'unregistered', {}, {}, {}, 0, -1 } end
local last, token = tonumber(state[2]) or 0, tonumber(A_token)
if token < last then return { 'outdated', {}, {}, {}, 0, -1 } end
local execution = A_incarnation .. ':' .. A_token .. ':'

if token == last then -- a resend: the same answers, and the jobs that are still this worker's by that token
  local answers, jobs, i = {}, {}, 0
  for answer in string.gmatch(state[3] or '', '[^\n]+') do answers[#answers + 1] = answer end
  for queue, id in string.gmatch(state[4] or '', '(%S+) (%S+)') do
    i = i + 1
    local job = redis.pcall('HMGET', job_key(id), 'status', 'execution_id', unpack(RUN_FIELDS))
    if job[1] == 'started' and job[2] == execution .. i then
      jobs[#jobs + 1] = { queue, id, execution .. i, unpack(job, 3, 2 + #RUN_FIELDS) }
    end
  end
  return { 'ok', answers, jobs, {}, 0, -1 }
end

-- the commit half: each outcome stands or falls alone, and all are answered before anything is claimed
local held_key = worker_jobs_key(A_name)
local at, answers, done, good, failed, worked = REST, {}, {}, 0, 0, 0
for i = 1, tonumber(A_n_outcomes) do
  local kind, id, exec, elapsed, age, delay, reason, n = unpack(ARGV, at, at + 7)
  local ok, answer, changed = pcall(commit, kind, id, exec, tonumber(elapsed), tonumber(age), tonumber(delay), reason,
    { unpack(ARGV, at + 8, at + 7 + n) })
  at = at + 8 + n
  answers[i] = ok and answer or 'error: ' .. error_text(answer)
  if ok and (answer == 'ok' or redis.pcall('HGET', held_key, id) == exec) then done[#done + 1] = id end
  if changed == true then
    worked = worked + elapsed
    if kind == 'finished' then good = good + 1 elseif kind == 'failed' or kind == 'retry' then failed = failed + 1 end
  end
end
if #done > 0 then redis.pcall('HDEL', held_key, unpack(done)) end

-- the claim half
local first_queue, count, n_slots = at, tonumber(A_n_queues), tonumber(A_n_slots)
local queues = { unpack(ARGV, first_queue, first_queue + count - 1) }
local suspended = redis.call('EXISTS', K_suspended) == 1
if suspended then count = 0 end
local jobs, given, bad, again, heads, start, steps = {}, {}, {}, 0, {}, 0, 0

-- The best entry of the i-th queue, false if it has none or can't be served.
local function head_of(i)
  if heads[i] == nil then
    local ok, head, more = pcall(look, queues[i])
    if not ok then bad[#bad + 1] = { queues[i], error_text(head) } end
    if ok and more then again = 1 end
    heads[i] = ok and head
  end
  return heads[i]
end

local function best_queue(floor)
  local best, class
  for k = 0, count - 1 do
    local i = (start + k) % count + 1
    local head = head_of(i)
    if head and head.class >= floor and (not class or head.class > class) then best, class = i, head.class end
  end
  return best
end

-- A job for one slot, or nil.
local function claim(floor)
  while steps < STEPS do
    local i = best_queue(floor)
    if not i then return nil end
    local head = heads[i]
    local ok, job = pcall(take, queues[i], head, execution .. (#jobs + 1))
    heads[i] = head.next
    if not ok then
      bad[#bad + 1] = { queues[i], error_text(job) }
      heads[i] = false
    elseif job then
      start = i
      return job
    else
      steps = steps + 1
    end
  end
  again = 1
  return nil
end

for s = 0, n_slots - 1 do
  local job = claim(tonumber(ARGV[first_queue + #queues + s]))
  if job then
    jobs[#jobs + 1] = job
    given[#given + 1] = job[1] .. ' ' .. job[2]
  end
end

local next_ms, busy = -1, true
if #jobs > 0 then -- what is left wakes another worker
  for i = 1, count do
    if head_of(i) then ring(queues[i]) end
  end
else
  busy = redis.pcall('HLEN', held_key) ~= 0
  local due = redis.pcall('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  if due[2] then next_ms = math.max(0, math.ceil(tonumber(due[2]) * 1000 - now_ms)) end
end

local note = { 'token', A_token, 'answers', table.concat(answers, '\n'), 'given', table.concat(given, '\n'),
  'state', busy and 'busy' or suspended and 'suspended' or 'idle' }
local function add(field, value) note[#note + 1], note[#note + 2] = field, value end
if #jobs > 0 or not busy then add('current_job', jobs[1] and jobs[1][2] or '') end
if good > 0 then add('successful_job_count', (tonumber(state[6]) or 0) + good) end
if failed > 0 then add('failed_job_count', (tonumber(state[7]) or 0) + failed) end
if worked > 0 then add('total_working_us', (tonumber(state[8]) or 0) + worked) end
local beat = tonumber(state[5])
if not beat or now_ms < beat or now_ms - beat >= BEAT_MS then
  add('beat_ms', now_ms)
  add('last_heartbeat', now_iso)
  redis.call('EXPIRE', K_worker, A_worker_ttl)
end
redis.call('HSET', K_worker, unpack(note))
return { suspended and 'suspended' or 'ok', answers, jobs, bad, again, next_ms }
