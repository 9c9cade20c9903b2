-- Names of keys that are known only inside a script; the modules `keys` and `..._keys` of fusion/store/layout are the
-- other half of this table. A script pays for none that it does not use.
-- Exports: fifos
-- INCLUDE: states
-- RARER: unique_key locks_key
local FAILED, SCHEDULED = P .. 'queue:failed', P .. 'scheduler:scheduled_jobs'
local SUSPENDED, REAP = P .. 'suspended', P .. 'reap'
local QUEUES, LEASES, WILDCARDS = P .. 'queues', P .. 'leases', P .. 'wildcards'
local FIFOS, FLEET, GATES = P .. 'fifos', P .. 'fleet', P .. 'gates'
local EXPIRING, CALLBACK_ERRORS = P .. 'expiring', P .. 'callback_errors'
local function job_key(id) return P .. 'job:' .. id end
local function dependents_key(id) return P .. 'job:' .. id .. ':dependents' end
local function queue_key(queue) return P .. 'queue:' .. queue end
local function fifo_key(queue) return P .. 'fifo:' .. queue end
local function inbox_key(queue) return P .. 'inbox:' .. queue end
local function wip_key(queue) return P .. 'wip:' .. queue end
local function wake_key(queue) return P .. 'wake:' .. queue end
local function wake_high_key(queue) return P .. 'wake:' .. queue .. ':high' end
local function work_key(wildcard) return P .. 'work:' .. wildcard end
local function paused_key(queue) return P .. 'paused:' .. queue end
local function closed_key(queue) return P .. 'wake:' .. queue .. ':closed' end
local function worker_key(name) return P .. 'worker:' .. name end
local function worker_jobs_key(name) return P .. 'worker:' .. name .. ':jobs' end
local function queue_name(key) return string.sub(key, #P + 7) end
local function worker_of(key) return string.sub(key, #P + 8) end

-- The logs of jobs.
local LOGS, LOG_SIZES = P .. 'logs', P .. 'logs:sizes'
local function log_key(id) return P .. 'log:' .. id end

-- Batches.
local BATCHES, BATCHES_DUE, BATCHES_AUDIT = P .. 'batches', P .. 'batches:due', P .. 'batches:audit'
local function batch_key(batch) return P .. 'batch:' .. batch end
local function batch_open_key(batch) return P .. 'batch:' .. batch .. ':open' end
local function batch_members_key(batch) return P .. 'batch:' .. batch .. ':members' end
local function batch_ended_key(batch) return P .. 'batch:' .. batch .. ':ended' end

-- Jobs that wait for others.
local GRAPHS = P .. 'graphs'
local function children_key(id) return P .. 'job:' .. id .. ':children' end
local function parents_key(id) return P .. 'job:' .. id .. ':parents' end
local function graph_key(token) return P .. 'graph:' .. token end
local function unmet_key(id) return P .. 'job:' .. id .. ':dependencies' end

-- Failure groups.
local FAILURES, FAILURES_EMPTY = P .. 'failures', P .. 'failures:empty'
local function failure_key(group) return P .. 'failure:' .. group end
local function failure_jobs_key(group) return P .. 'failure:' .. group .. ':jobs' end
local function failure_queues_key(group) return P .. 'failure:' .. group .. ':queues' end

-- Cron and the schedulers.
local SCHEDULERS, CRON_DUE, CRON_MARKS = P .. 'schedulers', P .. 'cron:due', P .. 'cron:marks'
local function cron_entry_key(entry) return P .. 'cron:entry:' .. entry end
local function cron_history_key(entry) return P .. 'cron:history:' .. entry end
local function scheduler_key(name) return P .. 'scheduler:process:' .. name end

-- Concurrency keys.
local LIMITS, LIMITS_DUE, LIMITS_AUDIT = P .. 'limits', P .. 'limits:due', P .. 'limits:audit'
local function limit_key(name) return P .. 'limit:' .. name end
local function holders_key(name) return P .. 'limits:held:' .. name end
local function queue_up_key(name) return P .. 'limits:waiting:' .. name end
local function locks_key(name) return P .. 'limits:locks:' .. name end

-- Operations.
local OPERATIONS = P .. 'operations'
local function operation_key(id) return P .. 'operation:' .. id end
local function operation_seen_key(id) return P .. 'operation:' .. id .. ':seen' end

-- Unique keys.
local UNIQUES, UNIQUES_AUDIT = P .. 'uniques', P .. 'uniques:audit'
local function unique_key(name) return P .. 'unique:' .. name end

-- Readers of the event stream.
local function relay_key(name) return P .. 'relay:' .. name end
local function sink_key(name) return P .. 'sink:' .. name end

-- What an execution's id ends in: AHEAD, ALONE, or a digit.
local function mark_of(exec) return string.sub(exec, -1) end

-- Whether a worker named this for any number of queues; no queue can have such a name.
local function is_wildcard(name) return string.find(name, '[*?%[]') ~= nil end

-- Stock RQ keeps the jobs it runs in the same sets as we do, scored in seconds or with +inf: below what a lease in
-- milliseconds can be, or above.
local LEAST_LEASE = 1e11

-- `scheduler` is a LIST that outsiders push to; what was taken over from it waits in a ZSET like any other queue.
local function is_list(queue) return queue == 'scheduler' end

-- Whether the jobs of a queue wait in its `rq:fifo:` key, as its own key is a LIST of stock RQ's, or was one once:
-- RQ's producers may push there at any moment, and what was never one key's type must not become it. Noted for the
-- whole fleet by whoever sees it first.
local fifos = { scheduler = true } -- as far as this call has looked
local function in_fifo(queue)
  local known = fifos[queue]
  if known == nil then
    known = redis.pcall('SISMEMBER', FIFOS, queue) == 1
    if not known and redis.pcall('TYPE', queue_key(queue)).ok == 'list' then
      known = true
      redis.pcall('SADD', FIFOS, queue)
    end
    fifos[queue] = known
  end
  return known
end

local function ready_key(q) return fifos[q] ~= false and in_fifo(q) and fifo_key(q) or queue_key(q) end

-- A status that only a newer version knows. Its job stands in a set of that version's, and is left alone.
local function is_foreign(status) return status == 'blocked' or status ~= 'queued' and not is_elsewhere(status) end

-- The set in which a job of this status stands.
local function set_of(status, queue)
  if status == 'failed' then return FAILED end
  if status == 'scheduled' then return SCHEDULED end
  if status == 'started' then return wip_key(queue) end
  if is_elsewhere(status) then return P .. status .. ':' .. queue end
  return ready_key(queue)
end

-- Whether outsiders may have meant this as a job's id. Anything else could make the name of another key.
-- A set takes twice as long as a class, which nearly all ids are of.
local function is_id(id) return #id <= 128 and (string.find(id, '^%w+$') or string.find(id, '^[%w_.:-]+$')) ~= nil end

-- What an error caught by pcall says, in one line: a table on Redis 7, a string before.
local function error_text(err)
  local text = type(err) == 'table' and err.err or err
  return (string.gsub(tostring(text), '%s+', ' '))
end

-- The reply for an error caught by pcall, as if nothing had caught it: Redis 6 says where in the script, too.
local function error_reply(err)
  local text = error_text(err)
  return redis.error_reply(string.match(text, '[A-Z]+ .+') or text)
end
