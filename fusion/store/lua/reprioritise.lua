-- reprioritise: jobs that wait get another priority, and the place that it gives them in whatever they wait in.
-- ARGV: priority operation n_jobs
-- INCLUDE: writer keys score count ring turns park limit ties each count_operation states
-- Uses: tied
-- Rest: ids; then the signature of each as the caller read it, empty for none; then those that they get: empty for
--   none, or `!` and a word, why the caller refuses
-- Returns: an answer per job: ok | missing | foreign (another program's job, or one without a place yet) | list (its
--   queue is a LIST, and knows one priority only) | altered (its signature is another by now) | the caller's word |
--   error: why (a broken key) | its status, which is none that waits | of an operation also: see count_operation
-- The arrival number stays, or that of its turn: among those moved, and inside a key, the order is what it was. The
-- counters of its queue tell of it from then on as if it had been enqueued with this priority.
local priority, n_jobs, at = tonumber(A_priority), tonumber(A_n_jobs), 0
local raised, moved = {}, {} -- queues or sets of blocked jobs to ring for; concurrency keys to settle
local changed = false

local function reprioritise(id)
  local key, old, new = job_key(id), ARGV[REST + n_jobs + at - 1], ARGV[REST + 2 * n_jobs + at - 1]
  local status, origin, seq, was, signature, set, ties, fair_key, name = unpack(redis.call('HMGET', key, 'status',
    'origin', 'seq', 'priority', 'signature', 'waits_in', 'ties', 'fair_key', 'concurrency_key'))
  if not status then return 'missing' end
  if not seq then return 'foreign' end
  local queue = origin or ''
  if status == 'started' or is_terminal(status) or is_foreign(status) and not (status == 'blocked' and set) then
    return status
  end
  if is_list(queue) then return 'list' end
  local before = class_of(was)
  if before == priority then return 'ok' end
  if string.sub(new, 1, 1) == '!' then return string.sub(new, 2) end
  if (signature or '') ~= old then return 'altered' end
  redis.call('HSET', key, 'priority', A_priority)
  if new ~= '' then redis.call('HSET', key, 'signature', new) end
  note_more(TOTALS .. ':' .. queue, 'enqueued', before, -1)
  note_more(TOTALS .. ':' .. queue, 'enqueued', priority, 1)
  changed = true
  if ties then tied[key] = ties end
  local of_key = ties and counters_of_key(key)
  if of_key then
    note_more(of_key, 'enqueued', before, -1)
    note_more(of_key, 'enqueued', priority, 1)
  end
  if not tonumber(seq) then return 'ok' end -- it waits for a time or for others, and gets its place then
  local score = score_of(queue, priority, seq)
  local better = priority > before
  if status == 'queued' then
    redis.call('ZADD', ready_key(queue), 'XX', score, id)
    if better then raised[queue] = true end
    if tonumber(seq) >= 0 and has_turns(queue) then -- who comes later of its key stays behind it
      redis.call('ZADD', turns_key(queue), 'LT', score, string.format('%d:', priority) .. (fair_key or ''))
    end
  elseif status == 'blocked' and string.sub(set, 1, 6) ~= 'limit:' then
    redis.call('ZADD', waits_key(set), 'XX', score, id)
    if better then raised[set] = false end
  end
  if of_key then
    local place = place_in_key(key, queue, score)
    redis.call('ZADD', holders_key(name), 'XX', place, id)
    redis.call('ZADD', queue_up_key(name), 'XX', place, id)
    moved[name] = true
  end
  return 'ok'
end

local one = of_operation(A_operation, reprioritise)
local answers = each(function(id)
  at = at + 1
  return one(id)
end, REST, n_jobs)
for name in pairs(moved) do pcall(settle_key, name) end
for name, is_queue in pairs(raised) do
  if is_queue then ring(name, priority) else ring_set(name, priority) end
end
if changed then write_more() end
write_operation(A_operation)
return answers
