-- follow: claim the jobs that stand next in line behind one that this worker has, as long as they may share its call.
-- KEYS: worker suspended
-- ARGV: name incarnation token lease_ms queue class execution n id func gather serializer
-- FLAGS: allow-oom
-- RARE: enter_line line_up_again score_of next_seq on_leave
-- INCLUDE: keys count emit ring limit claim turn_gates
-- Uses: gates held leased reply unexpected unrung unsettled
-- `id`, `execution`: the job which has begun the call, theirs are `<execution>.<token>.<i>`. `class`, `func`, `gather`,
--   `serializer`: what is the same of all
-- Returns: {status, more, jobs...}; status: ok | unregistered | closed (suspended, paused or held back, or the job was
--   lost so often that it runs alone); jobs: as `turn` returns them; more: 1 = the next in line may be one of them, 0 =
--   another job stands there
-- Events: processing expired blocked canceled failed held
-- A token answers twice alike: the worker's hash keeps, in `follow`, the execution and the last token, and what it was
-- given. Whoever has the job that begins the call asks for one at a time.
local incarnation, memory = unpack(redis.call('HMGET', K_worker, 'incarnation', 'follow'))
if incarnation ~= A_incarnation then return { 'unregistered', 0 } end
local execution, given, first = A_execution .. '.' .. A_token .. '.', {}, A_execution .. ' ' .. A_token .. ' '
if memory and string.sub(memory, 1, #first) == first then -- a resend: what is still this worker's by that token
  reply[1], reply[2] = 'ok', tonumber(string.sub(memory, #first + 1, #first + 1)) or 0
  local i = 0
  for id in string.gmatch(memory, '\n(%S+)') do
    i = i + 1
    local exec, job = execution .. i, redis.pcall('HMGET', job_key(id), 'status', 'execution_id', RUN_FIELDS,
      TIED_FIELDS)
    if job[1] == 'started' and job[2] == exec then
      add_to(reply, A_queue, id, exec, unpack(job, 3, 2 + N_RUN_FIELDS + N_TIED_FIELDS))
    end
  end
  return reply
end

-- Whether the entry is a job like the one that has begun the call.
local function is_alike(entry)
  if entry.class ~= tonumber(A_class) or entry.aside or not is_id(entry.id) then return false end
  local job = redis.pcall('HMGET', job_key(entry.id), 'status', 'gather', 'func', 'serializer', 'origin', 'suspect')
  return not job.err and job[1] == 'queued' and job[2] == A_gather and job[3] == A_func
      and (job[4] or '') == A_serializer and job[5] == A_queue and (job[6] or '0') == '0'
end

-- Whether the next loss of the job that has begun the call is to be its own.
local function is_on_probation()
  local found = redis.pcall('HMGET', job_key(A_id), 'lost', 'on_lost')
  return (tonumber(found[1]) or 0) >= PROBATION and found[2] ~= 'again'
end

if is_on_probation() or redis.call('EXISTS', K_suspended, paused_key(A_queue)) > 0
    or read_gates({ [0] = A_queue }, 1)[1] then
  return { 'closed', 0 }
end
unrung = {}
local n, out, more = tonumber(A_n), {}, 1
reply[1], reply[2] = 'ok', 0
local head = look(A_queue, n, nil)
advance(head)
while #given < n and head.id do
  if not is_alike(head) or gates[0] and not is_open(0, false) then
    more = 0
    break
  end
  local ok, job = pcall(take, A_queue, head, execution .. (#given + 1), nil)
  if not ok then
    more = 0
    break
  end
  out[#out + 1] = head.id
  if job then
    if gates[0] then note_start(0) end
    given[#given + 1] = head.id
  end
  advance(head)
end

if leased[A_queue] and leased[A_queue][1] then redis.call('ZADD', wip_key(A_queue), unpack(leased[A_queue])) end
if held[1] then redis.call('HSET', worker_jobs_key(A_name), unpack(held)) end
if unexpected[1] then redis.call('ZREM', EXPIRING, unpack(unexpected)) end
if out[1] then redis.call('ZREM', ready_key(A_queue), unpack(out)) end
if given[1] then redis.pcall('ZADD', LEASES, 'NX', LEASE_END, A_queue) end
if gates[0] then
  if keep_gate(0, A_queue, head.id and head, nil, #given) then ring(A_queue, head.class) end
end
local rung = unrung
unrung = nil
for queue in pairs(rung) do ring(queue) end
if unsettled then settle_all() end
redis.call('HSET', K_worker, 'follow', first .. more .. (given[1] and '\n' .. table.concat(given, '\n') or ''))
give_back_numbers()
write_tallies()
reply[2] = more
return reply
