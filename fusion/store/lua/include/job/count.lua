-- Lifetime counters of a queue by priority, `rq:totals:<queue>`: what came in (enqueued requeued), how it ended
-- (completed failed expired discarded canceled stopped deleted). The script that makes a transition counts it, where
-- the job's status changes, so a resend, which changes nothing, counts nothing. A call gathers what it counts and
-- writes it at its end, one HINCRBY for each field.
-- INCLUDE: keys time score ties
-- RARE: meet
-- OFTEN: counters_of_key note_more write_more
-- Uses: key_alone
-- Exports: first_count
local TOTALS = P .. 'totals'
local first_what, first_queue, first_class, first_count -- most calls count one thing, and make no table for it
local counts -- all else: by hash, then by field

-- The hash of a job's concurrency key, which is forgotten a day after it was used last; nil without a key. The
-- caller knows that the job has ties.
local counted = {} -- names of keys that this call has noted as used
local function counters_of_key(key, known)
  local name = known or key_alone[key] or redis.call('HGET', key, 'concurrency_key')
  if not name then return nil end
  if not counted[name] then redis.pcall('ZADD', LIMITS, 'NX', now_ms, name) end
  counted[name] = true
  return limit_key(name)
end

local function note_more(hash, what, class, n)
  local field = what .. ':' .. (class and class ~= '1' and string.format('%d', class_of(class)) or '1')
  counts = counts or {}
  counts[hash] = counts[hash] or {}
  counts[hash][field] = (counts[hash][field] or 0) + n
end

-- Never fails the transitions that it reports: a user who may not write there counts nothing.
local function write_more()
  for hash, fields in pairs(counts) do
    for field, n in pairs(fields) do redis.pcall('HINCRBY', hash, field, n) end
  end
  counts = nil
end

-- One more of a queue's, and of `other`, the hash of a key's.
local function tally(what, queue, class, other)
  if not first_count then
    first_what, first_queue, first_class, first_count = what, queue, class, 1
  elseif what == first_what and queue == first_queue and class == first_class then
    first_count = first_count + 1
  else
    note_more(TOTALS .. ':' .. queue, what, class, 1)
  end
  if other then note_more(other, what, class, 1) end
end

local function write_tallies()
  if not first_count then return end
  if counts then
    note_more(TOTALS .. ':' .. first_queue, first_what, first_class, first_count)
    write_more()
  else
    local class = (first_class == '1' or not first_class) and '1' or string.format('%d', class_of(first_class))
    redis.pcall('HINCRBY', TOTALS .. ':' .. first_queue, first_what .. ':' .. class,
      first_count == 1 and '1' or first_count)
  end
  first_count = nil
end

-- A job waits in a queue, and others than Fusion brought it there. One without an arrival number is an old producer's
-- or stock RQ's, and comes in now. Else it was moved by hand: it is deleted where it was, and starts over. Where that
-- was no queue, somebody wrote into its record.
local function meet(seq, from, was, queue, class)
  if not seq then
    tally('enqueued', queue, class)
  elseif from and (from ~= queue or class_of(was) ~= class_of(class))
      and redis.call('SISMEMBER', QUEUES, queue_key(from)) == 1 then
    tally('deleted', from, was)
    tally('requeued', queue, class)
  end
end
