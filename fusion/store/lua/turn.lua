-- turn: commit outcomes, then claim the next jobs for the free slots. The worker's only hot call.
-- KEYS: worker
-- ARGV: name incarnation token lease_ms worker_ttl special n_queues n_slots lowest n_outcomes minute minute_text
-- FLAGS: allow-oom
-- ONCE: commit_half claim_half list_queues note_begun list_sets check_rare_keys fill_slots write_down_claims
-- ONCE: keep_gates settle_keys mend_indexes wake_others give_back_numbers claim best_queue callback_error next_due
-- ONCE: write_tallies emit are_wildcards ring on_claim take_out starving claim_in_chain each_of iso iso_before tally
-- ONCE: reserve queue_of_plain on_end end_job advance read_job
-- RARE: enter_line line_up_again score_of next_seq on_leave on_return write_tallies are_wildcards ring on_arrive
-- RARE: on_claim take_out each_of iso iso_before tally reserve emit on_end end_job
-- RARER: error_text in_fifo is_elsewhere is_terminal expand set_of
-- INCLUDE: keys time count emit ring schedule score park limit commit claim wildcards queue_gate turn_gates
-- Uses: bound chains count crowded expected fifos first_count freed gates held lacking leased left listed names opens
-- Uses: origin parked reply soonest tail unexpected unrung unsettled wildcards
-- `lowest`: the lowest priority that a slot may take, the same of all, or that of each with a space between. The last
--   n_ahead slots are room behind running jobs
-- `special`: empty, or with a space between: alone only_sets listed n_ahead n_begun n_sets n_lacking known. `alone`:
--   1 = it runs one job at a time, and nothing ever beside it. `only_sets`: 1 = it takes blocked jobs alone. `listed`:
--   1 = the queues' order is a rank. `known`: the version of the list of sets of blocked jobs that it has, or empty
-- Each word of a call, and of its reply, takes the server half a thousand instructions: what few have is left out.
-- Sections, one behind the other (fusion/store/write/turn_codec.py writes them); n_...: how many entries each has
--   queues    a name, or a wildcard and after a space the last queue that was served by it
--   begun     id, execution: of jobs that were claimed ahead and have begun
--   sets      of blocked jobs that the worker can serve, of its queues
--   lacking   a task that the worker lacks, why
--   outcomes  kind id execution elapsed_us age_us n_pairs pairs..., and of all but `finished` delay_ms reason; `keyed`
--     is `finished` of a job that may have no option but a concurrency key
-- Returns: {status, answers, more, jobs...}; status: ok | suspended | unregistered | outdated; answers: a line each,
--   one `ok` if all are; jobs: how many words a job has, and these: queue, id, execution, values of RUN_FIELDS... (of a
--   plain job but the first three: its origin is the queue); more: none, mostly, or {bad, again, releases, next_ms,
--   waits, open_ms} (each list in a reply takes long, an empty one too); bad: {queue, error}; again: 1 = another turn
--   finds more; releases: 1 = `release` has something to do; next_ms: ms to a due job that the worker may not know of,
--   -1 for none; waits: none if the worker has the list of sets of blocked jobs; else its version (empty: there is
--   none), and the sets; open_ms: ms until this worker is to take a turn, as a queue that is closed by its rate opens
--   then; missing mostly
-- Events: completed failed retry held released displaced abandoned canceled stopped processing expired blocked
-- A token answers twice alike: the worker's hash keeps, in `turn`, the last token and what nothing else tells: its
-- answers, if not all are `ok`, jobs that could not be given (a line each), ms to what it put into the schedule, and
-- open_ms. What it was given is among the jobs that the worker holds: their executions have the token.
local RELEASING = P .. 'releasing'
local incarnation, memory, was, beat, finished, worked
if A_n_outcomes == '0' then
  incarnation, memory, was, beat = unpack(redis.call('HMGET', K_worker, 'incarnation', 'turn', 'state', 'beat_ms'))
else
  incarnation, memory, was, beat, finished, worked = unpack(redis.call('HMGET', K_worker, 'incarnation', 'turn',
      'state', 'beat_ms', 'successful_job_count', 'total_working_us'))
end
if incarnation ~= A_incarnation then return { 'unregistered', false, false } end
local token, last = A_token + 0, memory and tonumber(string.match(memory, '^%d+')) or 0
if token < last then return { 'outdated', false, false } end
local execution = A_incarnation .. ':' .. A_token .. ':'
reply[1], reply[2], reply[3] = 'ok', false, false
local n_given, bad = 0, {} -- jobs that the reply has
local answers -- of all outcomes, if one is not `ok`

local mark, known, only_sets, listed_queues, n_ahead = '', '', false, false, 0
-- Where each section begins: behind the one before it.
local QUEUES_FROM = REST
local n_slots = A_n_slots + 0
local begun_from = QUEUES_FROM + A_n_queues
local sets_from, lacking_from, outcomes_from = begun_from, begun_from, begun_from
if A_special ~= '' then
  local alone, only, listed_too, ahead, n_begun, n_sets, n_lacking, version = string.match(A_special,
    '^(%d) (%d) (%d) (%d+) (%d+) (%d+) (%d+) (.*)$')
  mark, only_sets, listed_queues = alone == '1' and ALONE or '', only == '1', listed_too == '1'
  n_ahead, known = ahead + 0, version
  sets_from = begun_from + 2 * n_begun
  lacking_from = sets_from + n_sets
  outcomes_from = lacking_from + 2 * n_lacking
end

-- One command for a whole list of arguments; Lua's stack bounds how many go into one.
local function each_of(verb, key, list, first)
  for i = first, #list, 1000 do redis.pcall(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end

local remembered = A_token -- what the worker's hash keeps of this turn

-- Each outcome stands or falls alone, and all are answered before anything is claimed.
local NONE = {}
local n_finished, n_failed, spent = 0, 0, nil -- of the outcomes that changed something; the time of their runs
local function commit_half()
  local done, at = { nil }, outcomes_from
  for i = 1, A_n_outcomes + 0 do
    local kind, id, exec, elapsed, age = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    local n, delay, reason, keyed = ARGV[at + 5], nil, nil, kind == 'keyed'
    if keyed then kind = 'finished' end
    local more = n == '0' and kind == 'finished' and NONE or { unpack(ARGV, at + 6, at + 5 + n) }
    at = at + 6 + n
    if kind ~= 'finished' then
      delay, reason, at = ARGV[at] + 0, ARGV[at + 1], at + 2
    end
    local raised = NONE
    if more[1] then
      raised = callback_error(more)
    end
    local ok, answer, changed = pcall(commit, kind, id, exec, elapsed, age, delay, reason, more, raised, keyed)
    if not ok then answer = 'error: ' .. error_text(answer) end
    if answer ~= 'ok' and not answers then
      answers = {}
      for before = 1, i - 1 do answers[before] = 'ok' end
    end
    if answers then answers[i] = answer end
    if ok and (answer == 'ok' or redis.pcall('HGET', held_key, id) == exec) then done[#done + 1] = id end
    if ok and changed then
      if raised[1] then -- counted last, and once: an outcome that is refused comes again
        redis.pcall('HINCRBY', CALLBACK_ERRORS, 'count', 1)
        redis.pcall('HSET', CALLBACK_ERRORS, 'job_id', id, 'at', now_iso)
      end
      spent = (spent or 0) + elapsed
      if kind == 'finished' or kind == 'repeat' then
        n_finished = n_finished + 1
      elseif kind == 'failed' or kind == 'retry' or answer == 'failed' then
        n_failed = n_failed + 1
      end
    end
  end
  if unsettled then settle_all() end
  if answers then remembered = remembered .. '\n<' .. table.concat(answers, '\n<') end
  if n_failed > 0 and type(redis.pcall('HINCRBY', K_worker, 'failed_job_count', n_failed)) ~= 'number' then
    redis.call('HSET', K_worker, 'failed_job_count', n_failed)
  end
  for queue, ids in pairs(left) do
    local wip = wip_key(queue)
    for i = 1, #ids, 1000 do left[queue] = redis.pcall('ZREM', wip, unpack(ids, i, math.min(i + 999, #ids))) end
  end
  each_of('HDEL', held_key, done, 1)
  if done[1] then
    write_tallies()
  end
end

-- What the claim half takes jobs from are sources, counted from 0: the worker's queues, up to `count`, and behind them
-- sets of blocked jobs. Each set belongs to a queue, with whose jobs its own stand in one order.
local set_at = NONE -- by source: the set
local sets_of, unindexed = NONE, NONE -- by queue: the sources of its sets; that nothing else of it is to be looked at
local n_sources
-- By source: its best entries, false if none is to be taken; those that are to leave it.
local queued, out = { [0] = nil }, { [0] = nil }
local single -- whether there is one source, with nothing special about it
local start, again = 0, 0 -- the queue whose turn it is; 1 if another turn finds more
local stopped, suspended, due_limits, waiting, gated, releasing -- what there is of that which is rare

local function list_queues()
  if n_slots > 0 and not only_sets then
    for i = QUEUES_FROM, begun_from - 1 do
      if is_wildcard(ARGV[i]) then
        for j = QUEUES_FROM, begun_from - 1 do listed[ARGV[j]] = true end
        expand(string.match(ARGV[i], '^(%S+) ?(.*)$'))
      else
        names[count] = ARGV[i]
        count = count + 1
      end
    end
    for i = 1, #tail do
      names[count], bound[count], origin[count] = unpack(tail[i])
      count = count + 1
    end
  end
end

local function list_sets()
  if lacking_from > sets_from and n_slots > 0 then
    local index = {}
    sets_of, set_at, unindexed = {}, {}, {}
    for i = 0, count - 1 do index[names[i]] = i end
    for i = sets_from, lacking_from - 1 do
      local queue = queue_of_set(ARGV[i])
      if not index[queue] then -- of a wildcard's: nothing but what is blocked waits there
        index[queue], names[count], unindexed[count] = count, queue, true
        count = count + 1
      end
      sets_of[index[queue]] = sets_of[index[queue]] or {}
      table.insert(sets_of[index[queue]], ARGV[i])
    end
  end
end

-- Jobs that were claimed ahead have begun: from now on they count as run.
local function note_begun()
  for i = begun_from, sets_from - 1, 2 do
    local key = job_key(ARGV[i])
    local job = redis.pcall('HMGET', key, 'status', 'execution_id')
    if job[1] == 'started' and job[2] == ARGV[i + 1] then redis.call('HSET', key, 'begun', ARGV[i + 1]) end
  end
end

-- One look for all that is rare: mostly nothing is there, and Lua's stack bounds how many keys go into one.
local function check_rare_keys()
  local paused = { nil }
  for i = 0, count - 1 do paused[i + 1] = paused_key(names[i]) end
  local there = redis.call('EXISTS', SUSPENDED, FIFOS, WILDCARDS, LIMITS_DUE, WAITS, GATES, RELEASING,
    unpack(paused, 1, math.min(count, 1000)))
  for first = 1001, count, 1000 do
    there = there + redis.call('EXISTS', unpack(paused, first, math.min(first + 999, count)))
  end
  if there == 0 then wildcards = {} elseif are_wildcards() then there = there - 1 end
  due_limits = there > 0 and redis.call('EXISTS', LIMITS_DUE) == 1
  if due_limits then there = there - 1 end
  waiting = there > 0 and redis.call('EXISTS', WAITS) == 1
  if waiting then there = there - 1 end
  gated = there > 0 and redis.call('EXISTS', GATES) == 1
  if gated then there = there - 1 end
  releasing = there > 0 and redis.call('EXISTS', RELEASING) == 1
  if releasing then there = there - 1 end
  stopped = there > 0
  suspended = stopped and redis.call('EXISTS', SUSPENDED) == 1
  if suspended then count = 0 end
  if gated and count > 0 then bad = read_gates(names, count) end
  for i = 0, count - 1 do
    out[i] = { nil }
    if stopped and redis.call('EXISTS', paused[i + 1]) == 1 then queued[i] = false end
  end
  n_sources = count
  if sets_of ~= NONE then
    for i, sets in pairs(sets_of) do
      if queued[i] == false or not waiting then sets_of[i], sets = nil, {} end
      if unindexed[i] then queued[i] = false end
      for k, set in ipairs(sets) do
        set_at[n_sources], out[n_sources], sets[k] = set, {}, n_sources
        n_sources = n_sources + 1
      end
    end
  end
end

local function take_out(i)
  if not out[i][1] then return end
  each_of('ZREM', set_at[i] and waits_key(set_at[i]) or ready_key(names[i]), out[i], 1)
  out[i] = {}
end

-- The best entry of a source; nil if it has none or can't be served.
local function head_of(i)
  local line, looked = queued[i], false
  if line and line.id then return line end
  repeat
    if line then
      advance(line)
    end
    if looked or line == false or line and (line.id or line.whole) then break end
    looked = true
    local queue = set_at[i] or names[i]
    take_out(i)
    if set_at[i] then -- its key is its own
    -- no queue ever was a LIST
    elseif stopped then in_fifo(queue) elseif fifos[queue] == nil then fifos[queue] = false end
    -- One at first, or two if the next is looked at in the end; then all that may be wanted: what is of the last
    -- entry's class alone, and without scores, if nothing is to be compared with them.
    local alike = line and line.score and not line.aside and line.class < 255 and not sets_of[i] and not set_at[i]
      and not fifos[queue]
    local ok, found, more = pcall(look, queue, line and n_slots - n_given + 1 or (n_slots > 1 or stopped or gated
      or wildcards[1]) and 2 or 1, set_at[i], alike and line.found[#line.found], alike and line.class)
    if not ok then bad[#bad + 1] = { queue, error_text(found) } end
    if ok and more then again = 1 end
    line = ok and found
    queued[i] = line
  until false
  return line and line.id and line
end

-- The source to take from, and the index of its queue. A queue whose head has a key is `shut` for claiming ahead.
-- `ahead`: for a job that is to wait behind others.
local function best_queue(floor, ahead)
  local best, class, its_queue
  if single then
    local head = head_of(0)
    if head and not head.shut and head.class >= floor then best, its_queue = 0, 0 end
  end
  for k = 0, single and -1 or count - 1 do
    local i = (start + k) % count
    local closed, sets = gates[i] and not is_open(i, ahead), sets_of[i]
    local passed_over = closed or bound[i] and queued[i] == nil and bound[i] <= (class or floor - 1)
    local head, at = not passed_over and head_of(i), i
    if sets and not closed then
      for _, other in ipairs(sets) do
        local theirs = head_of(other)
        if theirs and (not head or theirs.score > head.score) then head, at = theirs, other end
      end
    end
    if head and queued[at].shut then head = nil end
    if head and head.class >= floor and (not class or head.class > class) then
      best, class, its_queue = at, head.class, i
    end
  end
  return best, its_queue
end

-- An entry of a lower class that has waited longer than it may in its queue, and the queue's index.
local function starving(class)
  local found, at
  for k = 0, count - 1 do
    local i = (start + k) % count
    local head = not found and gates[i] and queued[i] ~= false and overdue(i, names[i], class, n_given)
    if head then found, at = head, i end
  end
  return found, at
end

-- Of one call: how much work on entries that give no job it does; what it is to clear one (stale, expired, corrupt),
-- and to set one aside; and how many expired ones it clears before more are set aside.
local MOST_WORK, TO_CLEAR, TO_SET_ASIDE, FEW = 100, 5, 1, 5
local work, expired = 0, 0

-- A job for one slot, or nil. `mark`: what its execution ends in.
local function claim(floor, mark)
  local job
  while not job do
    if work >= MOST_WORK then
      again = 1
      break
    end
    local from, of = best_queue(floor, mark == AHEAD)
    if not from then break end
    local head, late, late_of = queued[from], nil, nil
    if gated and floor <= 0 and head.class > 0 and mark ~= AHEAD then
      late, late_of = starving(head.class)
    end
    if late then head, from, of = late, late_of, late_of end
    local queue, line = names[of], queued[from]
    local nth = n_given > 0 and string.format('%d', n_given + 1) or '1' -- `..` takes twice as long to write a number
    local ok, found, expired_now = pcall(take, queue, head, execution .. nth .. mark, set_at[from])
    if not ok then
      bad[#bad + 1] = { queue, error_text(found) }
      if is_id(head.id) then remembered = remembered .. '\n!' .. head.id end
      queued[from] = false
    elseif found == KEYED then
      line.shut = true -- those that are claimed ahead come last
    else
      local gone = out[from]
      gone[#gone + 1] = head.id
      if late then -- it may stand further down in what was read
        take_out(from)
        queued[from] = nil
      else
        line.id = nil
      end
      if found then
        job = found
        if gates[of] then note_start(of) end
        if not listed_queues then start = of + 1 end -- the others of its class come before it
      else
        work = work + (found == nil and TO_SET_ASIDE or TO_CLEAR)
        if expired_now and not head.aside and not set_at[from] then
          expired = expired + 1
          if expired == FEW then -- once a call
            take_out(from)
            pass_expired(queue)
            queued[from] = nil
            head_of(from)
          end
        end
      end
    end
  end
  return job
end

-- A job for a slot ahead, behind one of the keyed jobs that this call gave, in turns. A chain is in one process: it
-- gets no more than its share of the slots ahead, nor than may wait in a process (`prefetch.MOST`).
local MOST_BEHIND = 15
local function claim_in_chain(floor)
  -- The best job that waits for a slot of a key goes behind the chain's last job. Not if a better job waits in this
  -- worker's queues, nor if anything is special about it, its queue or its key: then it waits for a slot of its own.
  local function claim_behind(chain)
    local id, score = unpack(redis.call('ZRANGE', queue_up_key(chain.name), 0, 0, 'REV', 'WITHSCORES'))
    score = tonumber(score)
    local slots = bounds_of(chain.name)
    if not score or class_of(score) < floor or slots.interval
        or redis.call('ZCARD', holders_key(chain.name)) > slots.limit then
      return nil
    end
    local status, queue, set, deliveries, isolate, ties = unpack(redis.call('HMGET', job_key(id), 'status', 'origin',
      'waits_in', 'deliveries', 'isolate', 'ties'))
    local of
    for i = 0, count - 1 do
      local head = head_of(i)
      if head and (head.class > class_of(score) or names[i] == queue and score_in(queue, head) > score) then
        return nil
      end
      if names[i] == queue and queued[i] ~= false and not gates[i] then of = i end
    end
    if not of or lacking or status ~= 'blocked' or set ~= 'limit:' .. chain.name or deliveries or isolate
        or string.find(ties or '', '[dmt]') then
      return nil
    end
    local exec = execution .. (n_given + 1) .. AHEAD
    chain.tried = id
    admit(chain.name, id, score, true)
    local job = take(queue, { id = id, class = class_of(score), score = score }, exec, nil, chain)
    out[of][#out[of] + 1] = id
    if not job then return nil end
    redis.call('HSET', job_key(chain.id), 'followed_by', id .. ' ' .. exec)
    chain.id, chain.exec = id, exec
    return job
  end
  local share, found = math.min(MOST_BEHIND, math.ceil(n_ahead / math.max(1, n_slots - n_ahead))), nil
  while chains[1] and not found do
    local chain = table.remove(chains, 1)
    chain.behind, chain.tried = (chain.behind or 0) + 1, nil
    local size = #reply
    local ok, job = pcall(claim_behind, chain)
    if not ok then
      if chain.tried then remembered = remembered .. '\n!' .. chain.tried end
      while #reply > size do table.remove(reply) end
    end
    if ok and job then
      if chain.behind < share then chains[#chains + 1] = chain end
      found = job
    end
  end
  return found
end

local spare -- the lowest priority of the slots that stay free

local function fill_slots()
  single = count == 1 and n_sources == 1 and not gated and not bound[0] and not unindexed[0]
  local floor, floors, last_at_once = tonumber(A_lowest), nil, n_slots - n_ahead
  if not floor then floors = string.gmatch(A_lowest, '%d+') end
  for nth = 1, n_slots do
    if floors then floor = floors() + 0 end
    if nth > last_at_once then mark = AHEAD end
    local given = claim(floor, mark)
    if not given and mark == AHEAD and chains[1] then
      given = claim_in_chain(floor)
    end
    if not given and mark ~= AHEAD then spare = math.min(spare or floor, floor) end
    if given then
      n_given = n_given + 1
    elseif floor <= 0 then
      break -- there is none of any class
    end
  end
end

local function write_down_claims()
  for queue, entries in pairs(leased) do
    each_of('ZADD', wip_key(queue), entries, 1)
    -- a job has just left it, so the index has its queue: `reap` takes out only those without any
    if not (tonumber(left[queue]) and left[queue] > 0) then redis.pcall('ZADD', LEASES, 'NX', LEASE_END, queue) end
  end
  each_of('HSET', held_key, held, 3)
  each_of('ZREM', EXPIRING, unexpected, 1)
  for i = 0, n_sources - 1 do
    take_out(i)
  end
end

local function keep_gates()
  if gated then
    for i = 0, count - 1 do
      if not unindexed[i] then freed[names[i]] = nil end
    end
    for queue in pairs(freed) do pcall(reopen, queue) end
  end
  for i in pairs(gates) do
    local head = head_of(i)
    for _, other in ipairs(sets_of[i] or NONE) do head = head or head_of(other) end
    if keep_gate(i, names[i], head, spare, n_given) then ring(names[i], head.class) end
  end
end

-- Behind the gates: what is admitted rings, unless its queue is closed and somebody waits for it.
local function settle_keys()
  for i = 0, count - 1 do
    if n_given > 0 then unrung[names[i]] = nil end -- what is left there is reported later
  end
  for queue in pairs(unrung) do ring(queue) end
  unrung = nil
  if unsettled then settle_all() end
end

-- What is in a wildcard's index and isn't so.
local function mend_indexes()
  for i = 0, count - 1 do
    if bound[i] and queued[i] ~= nil then
      local head = head_of(i)
      if crowded and head and gates[i] and is_shut(i) then -- whatever opens it, or else the survey, brings it back
        redis.pcall('ZREM', work_key(origin[i]), names[i])
        if n_given < n_slots then again = 1 end
      elseif head and head.class < bound[i] then
        redis.pcall('ZADD', work_key(origin[i]), head.class, names[i])
      elseif not head and not (is_list(names[i]) and redis.pcall('EXISTS', queue_key(names[i])) == 1) then
        redis.pcall('ZREM', work_key(origin[i]), names[i])
        if crowded and n_given < n_slots then again = 1 end -- it hid others
      end
    end
  end
end

-- What is left wakes another worker.
local function wake_others()
  local plain = not (stopped or gated or wildcards[1])
  for i = 0, count - 1 do
    local line = not is_list(names[i]) and queued[i] -- an inbox of stock RQ's is to be taken over
    if plain and line and not line.id and not line.whole and line.class and line.class < 2 then
      -- Not read yet, of no better class, and nothing silences its bell: whether any is there is all that counts.
      local ready, bell = ready_key(names[i]), wake_key(names[i])
      if redis.call('EXISTS', ready, ready, bell) == 2 then redis.call('RPUSH', bell, '1') end
    else
      local head = not (bound[i] and queued[i] == nil) and head_of(i)
      if head then
        ring(names[i], head.class, true)
      end
    end
    if bound[i] and queued[i] == nil then wake(origin[i], bound[i]) end
  end
  for i = count, n_sources - 1 do
    local head = head_of(i)
    if head then ring_set(set_at[i], head.class) end
  end
end

local function claim_half()
  list_queues()
  note_begun()
  list_sets()
  for i = lacking_from, outcomes_from - 1, 2 do
    lacking = lacking or {}
    lacking[ARGV[i]] = ARGV[i + 1]
  end
  check_rare_keys()
  fill_slots()
  write_down_claims()
  keep_gates()
  settle_keys()
  mend_indexes()
end

if token == last then -- a resend: the same answers, and the jobs that are still this worker's by that token
  answers = {}
  for answer in string.gmatch(memory, '\n<([^\n]+)') do answers[#answers + 1] = answer end
  local found, mine, most = redis.pcall('HGETALL', held_key), {}, 0
  for i = 1, #found, 2 do
    local id, exec = found[i], found[i + 1]
    local nth = string.sub(exec, 1, #execution) == execution and string.match(exec, '^(%d+)%a?$', #execution + 1)
    if nth and not string.find(memory .. '\n', '\n!' .. id .. '\n', 1, true) then
      mine[nth + 0], most = { id, exec }, math.max(most, nth)
    end
  end
  for nth = 1, most do
    local id, exec = unpack(mine[nth] or {})
    local job = id and redis.pcall('HMGET', job_key(id), 'status', 'execution_id', 'origin', RUN_FIELDS, TIED_FIELDS,
      CHAIN_FIELDS)
    if job and job[1] == 'started' and job[2] == exec then
      local last = 3 + N_RUN_FIELDS + N_TIED_FIELDS + (mark_of(exec) == AHEAD and N_CHAIN_FIELDS or 0)
      add_to(reply, job[3], id, exec, unpack(job, 4, last))
    end
  end
  reply[2] = answers[1] and table.concat(answers, '\n') or A_n_outcomes ~= '0' and 'ok'
  reply[3] = { false, 0, redis.call('EXISTS', RELEASING), tonumber(string.match(memory, '\n@(%d+)')) or -1,
    news_of_waits(known), tonumber(string.match(memory, '\n~(%d+)')) or false }
  return reply
end

unrung = {}
expected = math.max(1, A_n_outcomes + n_slots)
commit_half()
claim_half()

local state, due = 'busy', soonest -- of a turn that gave jobs: when the first is due that it put into the schedule
if soonest then remembered = remembered .. '\n@' .. math.max(0, soonest - now_ms) end
if opens then remembered = remembered .. '\n~' .. opens end
if n_given > 0 then
  wake_others()
else
  if redis.pcall('HLEN', held_key) == 0 then state = suspended and 'suspended' or 'idle' end
  due = next_due(due_limits or soonest)
end

local note, n = { 'turn', remembered, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }, 2
if spent then
  note[3], note[4], n = 'total_working_us', string.format('%d', (tonumber(worked) or 0) + spent), 4
  if n_finished > 0 then
    note[5], note[6], n = 'successful_job_count', string.format('%d', (tonumber(finished) or 0) + n_finished), 6
  end
end
if state ~= was then note[n + 1], note[n + 2], n = 'state', state, n + 2 end
if n_given > 0 or state ~= 'busy' then
  note[n + 1], note[n + 2], n = 'current_job', n_given > 0 and reply[6] or '', n + 2
end
beat = tonumber(beat)
-- a turn is a sign of life, written down this often at most
if not beat or now_ms < beat or now_ms - beat >= math.min(1000, A_lease_ms / 10) then
  note[n + 1], note[n + 2], note[n + 3], note[n + 4] = 'beat_ms', now_ms, 'last_heartbeat', now_iso
  redis.call('EXPIRE', K_worker, A_worker_ttl)
end
redis.call('HSET', K_worker, unpack(note))
give_back_numbers()
if first_count then write_tallies() end
local waits, more = (waiting or parked or known ~= '') and news_of_waits(known), false
if bad[1] or again == 1 or releasing or due or waits or opens then
  more = { bad[1] and bad or false, again, releasing and 1 or 0, due and math.max(0, due - now_ms) or -1,
    waits or false, opens or false }
end
if suspended then reply[1] = 'suspended' end
if A_n_outcomes ~= '0' then reply[2] = answers and table.concat(answers, '\n') or 'ok' end
reply[3] = more
return reply
