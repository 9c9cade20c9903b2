-- enqueue: accept jobs into one queue, all of them or none.
-- KEYS: queues
-- ARGV: queue n_jobs needs
-- RARE: in_fifo is_terminal is_elsewhere set_of due_of end_job on_end error_text error_reply
-- RARER: next_seq
-- INCLUDE: writer layout keys time count emit ring gate room turns sound accept
-- Uses: discarded fifos gate_texts fair wildcards
-- Rest: per job: id nonce priority place ttl_ms n_pairs pairs... (place: see due_of). Then, of a call that says so:
--   how many jobs may wait in the queue (or an empty text), and how many more the call brings after this
-- Returns: {'ok', enqueued_at, layout of the data, and if there are any a list of the ids that were discarded} |
--   {'duplicate', id, status; foreign: another program's record} |
--   {'full', how many wait, how many may, how many more were to}
-- Events: queued scheduled
-- `needs`: the layout in which these jobs are written; a `k` behind it if one has a concurrency key. A nonce that is
-- the job's id is not stored: an id made by chance is its call's alone. That holds for what was enqueued only: a record
-- made for an entry whose job was lost has none either, and who sends that job again must not be told that it is there.
-- Same id + same nonce is a resend and answers as the first time; same id + other nonce is a new life of an ended job,
-- or refused. A resend writes all the same, what changes nothing and a full server takes: on a connection that wrote
-- nothing WAIT waits for nothing, and a primary that was demoted meanwhile must not vouch for what its successor may
-- not have. No allow-oom here: at maxmemory the first write is refused and nothing has happened.
local at, fresh, seen, first_answer, again, targets, several = REST, {}, {}, now_iso, nil, {}, 0
local version = schema[2] and math.max(tonumber(schema[2]) or 0, FIRST_SCHEMA) -- garbage counts as the first

-- Whether there is a record without a mark of ours. Mostly there is none at all, no queue ever was a LIST of stock
-- RQ's, nothing is set for any, this one has no fair turns and no worker serves a wildcard: one look for all. A user of
-- before may not read these.
local looked = false
local function is_anothers(key)
  local found = not looked and redis.pcall('EXISTS', key, FIFOS, GATES, WILDCARDS, turns_key(A_queue))
  looked = true
  if found == 0 then
    wildcards = {}
  elseif tonumber(found) and are_wildcards() then
    found = found - 1
  end
  if found == 0 then
    gate_texts[A_queue] = false
    if fair[A_queue] == nil then fair[A_queue] = false end
  else
    found = redis.call('EXISTS', key, FIFOS)
  end
  if found == 0 then
    if fifos[A_queue] == nil then fifos[A_queue] = false end
    return false
  end
  in_fifo(A_queue)
  return redis.call('EXISTS', key) == 1 and not redis.call('HGET', key, 'seq') -- HEXISTS is not a producer's
end

for _ = 1, tonumber(A_n_jobs) do
  local id, sent, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 5])
  local status, nonce, origin, created_at, func = unpack(redis.call('HMGET', job_key(id), 'status', 'nonce', 'origin',
      'created_at', 'func'))
  if status and (nonce or func and id) == sent then
    first_answer, again = created_at, job_key(id)
    if status == 'canceled' and redis.call('HGET', again, 'reason') == 'discarded' then
      discarded[#discarded + 1] = id
    end
  elseif seen[id] or status and not is_terminal(status) then
    return { 'duplicate', id, status or 'queued' }
  elseif not nonce and is_anothers(job_key(id)) then
    return { 'duplicate', id, 'foreign' }
  else
    local due, front, fair_key
    if ARGV[at + 3] ~= 'back' then due, front, fair_key = due_of(ARGV[at + 3]) end
    local target = due and due > now_ms and 'schedule' or front and 'front' or 'back'
    fresh[#fresh + 1] = { id = id, nonce = sent, priority = ARGV[at + 2], due = due, front = front,
      ttl = tonumber(ARGV[at + 4]), first = at + 6, last = at + 5 + n,
      ended = status and set_of(status, origin or A_queue), turn = target == 'back' and (fair_key or '') }
    if not targets[target] then targets[target], several = true, several + 1 end
  end
  seen[id] = true
  at = at + 6 + n
end
if again and #fresh == 0 then
  local ttl = redis.call('PTTL', again)
  redis.call('PEXPIRE', again, ttl < 0 and 60000 or math.max(ttl, 1))
  if ttl < 0 then redis.call('PERSIST', again) end
end
if #fresh == 0 then return { 'ok', first_answer, version or FIRST_SCHEMA, discarded[1] and discarded } end

if gate_texts[A_queue] == nil then -- not by gate_of, which would make more than it: of another queue something is set
  local text = redis.pcall('HGET', GATES, A_queue)
  gate_texts[A_queue] = type(text) == 'string' and text
end
if gate_texts[A_queue] or MAX_LENGTH > 0 or ARGV[at] then
  local most, more = most_of(A_queue, ARGV[at]), tonumber(ARGV[at + 1]) or 0
  for _, job in ipairs(fresh) do -- those that wait for a time are not in the queue yet
    if not job.due or job.due <= now_ms then more = more + 1 end
  end
  local length = most and more > 0 and length_of(A_queue)
  if length and length + more > most then return { 'full', length, most, more } end
end

local needs = tonumber(A_needs)
if not needs then
  needs = tonumber(string.sub(A_needs, 1, -2))
  for _, job in ipairs(fresh) do
    local name = field_of('concurrency_key', job.first, job.last)
    local broken = name and broken_limit(name, A_queue)
    if broken then return redis.error_reply(broken) end
  end
end
if not version then version = is_new() and begin_layout('enqueue', true) or FIRST_SCHEMA end
if version < needs then return redis.error_reply('FUSION_SCHEMA older ' .. version .. ' ' .. needs) end

if several > 1 then -- jobs go to several keys: a broken one refuses them all now, not the rest of them later
  if not fifos[A_queue] then fifos[A_queue] = nil end
  redis.call('ZCARD', ready_key(A_queue))
  if is_list(A_queue) then redis.call('LLEN', queue_key(A_queue)) end
  if targets.schedule then redis.call('ZCARD', SCHEDULED) end
end
redis.call('SADD', K_queues, queue_key(A_queue))
local seq = redis.call('INCRBY', P .. 'seq', #fresh) - #fresh
reserve(#fresh)
local best
for i, job in ipairs(fresh) do
  local place = seq + i
  if job.turn and (job.turn ~= '' or fair[A_queue] ~= false) then -- one before it may be the first with a fair key
    place = turn_of(A_queue, job.priority, place, job.turn)
  end
  local ok, later = pcall(accept, A_queue, job.id, job.priority, job.due, job.front, job.ttl, job.nonce, place,
      job.ended, job.first, job.last)
  if not ok then
    write_tallies() -- of those before it
    return error_reply(later)
  end
  if not later then best = math.max(best or 0, tonumber(job.priority)) end
end
write_tallies()
if best then ring(A_queue, best) end
return { 'ok', now_iso, version, discarded[1] and discarded }
