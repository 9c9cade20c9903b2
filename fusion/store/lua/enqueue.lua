-- enqueue: accept jobs into one queue, all of them or none.
-- KEYS: queues
-- ARGV: queue n_jobs needs minute minute_text
-- ONCE: line_up look_for_remains iso accept enter_line tally write_tallies reserve emit are_wildcards
-- ONCE: ring on_arrive
-- RARE: in_fifo is_terminal is_elsewhere set_of due_of end_job on_end error_text error_reply of_outbox
-- RARE: iso accept enter_line tally write_tallies reserve emit are_wildcards ring on_arrive
-- RARER: next_seq with_met refuses answer_more
-- INCLUDE: writer layout keys time count emit ring room turns sound accept newcomer batch states attach kin cycle
-- INCLUDE: releasing
-- Uses: discarded fifos gate_texts fair wildcards
-- Rest: per job: id nonce priority place ttl_ms n_pairs pairs... (place: see due_of). Then, of a call that says so:
--   how many jobs may wait in the queue (or an empty text), and how many more the call brings after this
-- Returns: enqueued_at, mostly; else {'ok', enqueued_at, and if there are any a list of the ids that were discarded, of
--   those that met another of their unique key: {id, the other, how, pairs of the other's fields}; how: `skip`, it was
--   not accepted; `replaced`, it was, and the other is canceled: its own status in place of the pairs}, and the
--   ids of those that are deferred} | {'missing', id, a parent of it of which there is no job} |
--   {'duplicate', id, status; foreign: another program's record; leaving: that of the former job of this id, which has
--   not left its many parents yet; coming: one of a graph of which the last call has not come; if another has its
--   unique key: that one, the key} |
--   {'full', how many wait, how many may, how many more were to} |
--   {'batch', id of a batch, why it takes no more: missing | closed | canceled | taken} |
--   {'cycle', id, how it would wait for itself} |
--   {'done', number of an outbox's batch and the stamp of what was accepted} | {'gap', the same, or an empty text}
-- Events: queued scheduled deferred
-- `needs`: the layout in which these jobs are written; a `k` behind it if one has ties, a `u` if one has a unique key.
-- Behind that may stand `#`, the number of the call, a point and the token of a graph, whose jobs are all deferred
-- until `release_graph`; {'dropped'} is the answer if it was given up. One with an `h` among its ties is deferred until
-- `undefer` releases it. Or there stands `!` and which batch of an outbox these jobs are, see `of_outbox`: its
-- number is noted with them, for ever; nothing is accepted of one that was accepted before (`done`, with what was noted
-- then), or that does not follow the one that was noted last (`gap`).
-- A nonce that is the job's id is not stored: an id made by chance is its call's alone. That holds for what was
-- enqueued only: a record made for an entry whose job was lost has none either, and who sends that job again must not
-- learn that it is there. Same id + same nonce is a resend and answers as the first time; same id + other nonce is a
-- new life of an ended job, or refused. A resend writes all the same, what changes nothing and a full server takes: on
-- a connection that wrote nothing WAIT waits for nothing, and a primary that was demoted meanwhile must not confirm
-- what its successor may not have. No allow-oom here: at maxmemory the first write is refused and nothing has happened.

-- What outboxes of databases had accepted: by queue the number of the last batch, and the stamp of what was accepted
-- under it. A batch is named `<number>:<number before>:<outbox>:<stamp>`, in hexadecimal digits but for the numbers.
-- The answer of a batch that nothing is to be accepted of: it was accepted before, or what was accepted last is not the
-- batch before it. Written all the same, as a resend is. Once its jobs are `accepted`, so is its number.
local function of_outbox(batch, queue, accepted)
  local number, before, outbox, stamp = string.match(batch, '^(%d+):(%d+):(%x+):(.*)$')
  local key = P .. 'outbox:' .. outbox
  if accepted then
    redis.call('HSET', key, queue, number .. ' ' .. stamp)
    return nil
  end
  local noted = redis.call('HGET', key, queue) or ''
  local last = tonumber(string.match(noted, '^%d+')) or 0
  if last == tonumber(before) and last < tonumber(number) then return nil end
  if noted ~= '' then redis.call('HSET', key, queue, noted) end
  return { last >= tonumber(number) and 'done' or 'gap', noted }
end

-- The answer about unique keys; ids by unique key of those that come now; by the id of one that is skipped the job
-- that has its key.
local met, brought, instead
local seen = A_n_jobs ~= '1' and {} or nil -- by id: this call brings it; nobody asks of one alone
local coming = {} -- by id the parents of those that come now
local awaited = {} -- ids of these parents
local apart -- ids of those that are deferred

-- The parents of a job, with those that skipped ones have met in place of these. Of one that is named twice the last
-- policy holds.
local function with_met(parents)
  local found, place = {}, {}
  for _, member in ipairs(parents) do
    local sign, id = parent_in(member)
    id = instead[id] or id
    place[id] = place[id] or #found + 1
    found[place[id]] = sign .. id
  end
  return found
end

-- The answer that refuses a job for its parents: it would close a circle, or there is no such parent. Who has no life
-- before (`anew`) can only wait for itself, or for what its batch calls back.
local function refuses(id, parents, anew, batch)
  local path
  for _, member in ipairs(parents) do
    local _, one = parent_in(member)
    awaited[one] = true
    if one == id then path = { id, id } end
  end
  if not path then
    local around = batch and batches_around(batch, awaited)
    if around or anew and (awaited[id] or redis.call('EXISTS', children_key(id)) == 1) then
      path = cycle_of(id, parents, coming, nil, around or nil)
    end
    coming[id] = parents
  end
  if path then return { 'cycle', id, cycle_text(path) } end
  local missing = first_missing(parents, seen)
  return missing and { 'missing', id, missing }
end

-- The answer that all is well, and what it reports beside that.
local function answer_more(at, outbox_batch)
  if outbox_batch then of_outbox(outbox_batch, A_queue, true) end
  if not (discarded or apart or met and met[1]) then return { 'ok', at } end
  return { 'ok', at, discarded or {}, met or {}, apart or {} }
end

local at, fresh, first_answer, again, targets, several = REST, { nil }, now_iso, nil, {}, 0
local needs = schema[2] == A_needs and A_needs or tonumber(A_needs) -- nothing stands behind it
if not needs and string.find(A_needs, 'u', 1, true) then met, brought, instead = {}, {}, {} end
local graph, over
if not needs then
  local nth
  nth, graph = string.match(A_needs, '#(%d+)%.(%d+)$')
  if graph and redis.call('ZSCORE', P .. 'releasing', 'x ' .. graph) then return { 'dropped' } end
  over = graph and nth ~= '0' and not redis.call('ZSCORE', GRAPHS, graph) -- it was given up, or it has begun
end

local outbox_batch = not needs and string.match(A_needs, '!(.*)$')
if outbox_batch then
  local refused = of_outbox(outbox_batch, A_queue)
  if refused then return refused end
end

-- Whether anything is there under an id: another program's, too, or what is left of a job that was deleted. Mostly
-- there is nothing, no queue ever was a LIST of stock RQ's, nothing is set for any, this one has no fair turns and no
-- worker serves a wildcard: one look for all. Some users may not read these.
local looked, remains = false, 0
local function look_for_remains(id)
  local key, children, parents = job_key(id), children_key(id), parents_key(id)
  remains = not looked and redis.pcall('EXISTS', key, children, parents, FIFOS, GATES, WILDCARDS,
    turns_key(A_queue))
  looked = true
  if remains == 0 then
    wildcards = {}
  elseif tonumber(remains) and are_wildcards() then
    remains = remains - 1
  end
  if remains == 0 then
    gate_texts[A_queue] = false
    if fair[A_queue] == nil then fair[A_queue] = false end
  else
    remains = redis.call('EXISTS', key, children, parents, FIFOS)
  end
  if remains == 0 and fifos[A_queue] == nil then fifos[A_queue] = false end
end

local alone = A_n_jobs == '1' -- there is no other job to compare it with
for _ = 1, alone and 1 or A_n_jobs + 0 do
  local id, sent, n = ARGV[at], ARGV[at + 1], ARGV[at + 5] + 0
  look_for_remains(id)
  local status, nonce, origin, created_at, func, tied_before, graph_before, draft
  if remains > 0 then
    status, nonce, origin, created_at, func, tied_before, graph_before, draft = unpack(redis.call('HMGET', job_key(id),
        'status', 'nonce', 'origin', 'created_at', 'func', 'ties', 'graph', 'draft'))
    if draft then status, tied_before = nil, nil end -- a program's own record, which the job replaces
  end
  local resent = status and (nonce or func and id) == sent
  local unique = met and not resent and unique_of(at + 6, at + 5 + n)
  local ok, other = true, nil
  if unique then ok, other = pcall(meets, unique, brought, A_queue) end
  if not ok then return error_reply(other) end
  if resent then
    first_answer, again = created_at, job_key(id)
    local older = met and redis.call('HGET', again, 'replaces')
    if older then met[#met + 1] = { id, older, 'replaced', status } end
    if status == 'canceled' and redis.call('HGET', again, 'reason') == 'discarded' then
      discarded = discarded or {}
      discarded[#discarded + 1] = id
    end
    if status == 'deferred' then
      apart = apart or {}
      apart[#apart + 1] = id
      if graph and (redis.call('HGET', again, 'graph') or graph) ~= graph then return { 'dropped' } end
    end
  elseif over then
    return { 'dropped' }
  elseif other and other.way == 'raise' then
    return { 'duplicate', id, other.status, other.owner, other.name }
  elseif other and other.way == 'skip' then
    met[#met + 1] = { id, other.owner, 'skip', brought[other.name] ~= other.owner and view_of(other.owner) or nil }
    instead[id], instead[1] = other.owner, true -- ids are texts
  elseif seen and seen[id] or status and not is_terminal(status) then
    return { 'duplicate', id, may_go(graph_before) and 'coming' or status or 'queued' }
  else
    local why, of_before = false, tied_before or graph_before and 'p'
    if remains > 0 and not nonce then -- a record without a mark of ours, or what a deleted one left
      in_fifo(A_queue)
      if redis.call('EXISTS', children_key(id), parents_key(id)) > 0 then of_before = of_before or 'p' end
      -- HEXISTS is not a producer's
      local has_record = not draft and redis.call('EXISTS', job_key(id)) == 1
      if has_record and not redis.call('HGET', job_key(id), 'seq') then why = 'foreign' end
    end
    if of_before and redis.call('EXISTS', parents_key(id)) == 1
        and redis.call('ZSCORE', P .. 'releasing', 'p ' .. id) then
      why = 'leaving' -- more than one call can see to
    end
    if why then return { 'duplicate', id, why } end
    local due, front, fair_key
    if ARGV[at + 3] ~= 'back' then due, front, fair_key = due_of(ARGV[at + 3]) end
    local ties = not needs and field_of('ties', at + 6, at + 5 + n)
    local deferred = graph or ties and string.find(ties, 'h', 1, true) ~= nil
    local parents = ties and string.find(ties, 'p', 1, true) and field_of('parents', at + 6, at + 5 + n)
    if parents then parents = parents_of(parents) end
    if parents and instead and instead[1] then parents = with_met(parents) end
    if parents then
      local refused = refuses(id, parents, status or of_before, string.find(ties, 'b', 1, true)
          and not string.find(ties, 'h', 1, true) and field_of('batch', at + 6, at + 5 + n))
      if refused then return refused end
      deferred = deferred or must_wait(parents, seen)
    end
    local target = deferred and 'others' or due and due > now_ms and 'schedule' or front and 'front' or 'back'
    local job = { id = id, nonce = sent, priority = ARGV[at + 2], first = at + 6, last = at + 5 + n,
      turn = target == 'back' and (fair_key or '') }
    if due or front then job.due, job.front = due, front end
    if ARGV[at + 4] ~= '' then job.ttl = ARGV[at + 4] + 0 end
    if of_before then job.of_before = of_before end
    if draft then
      job.ended = ''
    elseif status then
      job.ended = set_of(status, origin or A_queue)
    end
    if deferred or parents or ties then
      job.deferred, job.parents, job.held = deferred, parents, graph or string.find(ties, 'h', 1, true) ~= nil
    end
    if unique then job.unique, brought[unique.name] = unique, id end
    fresh[#fresh + 1] = job
    if not alone and not targets[target] then targets[target], several = true, several + 1 end
  end
  if not alone then seen[id] = true end
  at = at + 6 + n
end
if again and #fresh == 0 then
  local ttl = redis.call('PTTL', again)
  redis.call('PEXPIRE', again, ttl < 0 and 60000 or math.max(ttl, 1))
  if ttl < 0 then redis.call('PERSIST', again) end
end
if #fresh == 0 then return answer_more(first_answer, outbox_batch) end

if gate_texts[A_queue] == nil then -- not by gate_of, which would make more than it: of another queue something is set
  local text = redis.pcall('HGET', GATES, A_queue)
  gate_texts[A_queue] = type(text) == 'string' and text
end
if gate_texts[A_queue] or MAX_LENGTH > 0 or ARGV[at] then
  local most, more = most_of(A_queue, ARGV[at]), tonumber(ARGV[at + 1]) or 0
  for _, job in ipairs(fresh) do -- those that wait for a time, or for others, are not in the queue yet
    local makes_room = job.unique and job.unique.room
    if not job.deferred and not makes_room and (not job.due or job.due <= now_ms) then more = more + 1 end
  end
  local length = most and more > 0 and length_of(A_queue)
  if length and length + more > most then return { 'full', length, most, more } end
end

if not needs then
  needs = tonumber(string.match(A_needs, '^%d+'))
  for _, job in ipairs(fresh) do
    local name = field_of('concurrency_key', job.first, job.last)
    local broken = name and broken_limit(name, A_queue)
    if broken then return redis.error_reply(broken) end
    local batch = field_of('batch', job.first, job.last)
    local why = batch and refuses_more(batch, field_of('batch_by', job.first, job.last),
      field_of('batch_as', job.first, job.last), job.id)
    if why then return { 'batch', batch, why } end
  end
end
if schema[2] ~= A_needs then
  local version
  if schema[2] then
    version = math.max(tonumber(schema[2]) or 0, FIRST_SCHEMA) -- garbage counts as the first
  else
    version = is_new() and begin_layout('enqueue', true) or FIRST_SCHEMA
  end
  if version < needs then return redis.error_reply('FUSION_SCHEMA older ' .. version .. ' ' .. needs) end
end

if several > 1 then -- jobs go to several keys: a broken one refuses them all now, not the rest of them later
  if not fifos[A_queue] then fifos[A_queue] = nil end
  redis.call('ZCARD', ready_key(A_queue))
  if is_list(A_queue) then redis.call('LLEN', queue_key(A_queue)) end
  if targets.schedule then redis.call('ZCARD', SCHEDULED) end
  if targets.others then redis.call('ZCARD', set_of('deferred', A_queue)) end
end
redis.call('SADD', K_queues, queue_key(A_queue))
if graph then redis.call('ZADD', GRAPHS, now_ms, graph) end
local seq = redis.call('INCRBY', P .. 'seq', fresh[2] and #fresh or '1') - #fresh
reserve(#fresh)
local best
for i, job in ipairs(fresh) do
  local place, waits = seq + i, job.deferred
  if job.of_before then begin_anew(job.id, job.of_before) end
  if job.parents then
    waits = job.held or must_wait(job.parents) -- those of this call are there by now
    attach(job.id, job.parents, place)
  end
  if graph then
    redis.call('ZADD', graph_key(graph), place, job.id)
    redis.call('SADD', unmet_key(job.id), '*' .. graph)
  end
  -- one before it may be the first with a fair key
  if not waits and job.turn and (job.turn ~= '' or fair[A_queue] ~= false) then
    place = turn_of(A_queue, job.priority, place, job.turn)
  end
  local ok, aside = true, nil
  if job.unique then
    ok, aside = pcall(accept_unique, job.unique, A_queue, job.id, job.priority, job.due, job.front, job.ttl, job.nonce,
        place, job.ended, job.first, job.last, waits)
    local older = job.unique.replaced
    if older then met[#met + 1] = { job.id, older, 'replaced', redis.call('HGET', job_key(job.id), 'status') } end
  elseif fresh[2] then
    ok, aside = pcall(accept, A_queue, job.id, job.priority, job.due, job.front, job.ttl, job.nonce, place, job.ended,
        job.first, job.last, waits)
  else -- nothing was counted before it
    aside = accept(A_queue, job.id, job.priority, job.due, job.front, job.ttl, job.nonce, place, job.ended,
        job.first, job.last, waits)
  end
  if not ok then
    write_tallies() -- of those before it
    return error_reply(aside)
  end
  if waits then
    apart = apart or {}
    apart[#apart + 1] = job.id
  end
  if graph then redis.call('HSET', job_key(job.id), 'graph', graph) end
  if job.parents and instead and instead[1] then
    redis.call('HSET', job_key(job.id), 'parents', cjson.encode(job.parents))
  end
  if not aside then
    local class = job.priority == '1' and 1 or job.priority + 0
    if not best or class > best then best = class end
  end
end
write_tallies()
if best then
  ring(A_queue, best)
end
if outbox_batch or met or discarded or apart then return answer_more(now_iso, outbox_batch) end
return now_iso -- a list takes longer
