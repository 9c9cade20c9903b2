-- prune: remove workers that are dead and give their jobs back, a bounded number at a time.
-- KEYS: workers
-- ARGV: name incarnation reason lease_ms limit duties
-- FLAGS: allow-oom
-- INCLUDE: keys time count settle life queue_gate portion tell
-- Returns: {1 if there is more to give back at once, else 0; name, jobs recovered, name, jobs ...}
-- Events: abandoned failed canceled stopped
-- With a name: that worker, at once (its supervisor saw it die), unless another incarnation has the name by now.
-- Without: those silent for three beats, unless an outage is just over.
-- One that held more than a call gives back stays in the list until the last of it: should the caller die in between,
-- the others find it there once it has been silent for long enough.
local recovered, again, queues, removed = 0, 0, {}, nil

local function remove(name, why)
  recovered = 0
  local whole = give_portion(name, function(id, exec, key)
    local job = read_job(key)
    if job.status ~= 'started' or job.execution_id ~= exec then return end
    recover(id, key, job.origin, job, wip_key(job.origin), why, name)
    recovered = recovered + 1
    queues[job.origin] = true
  end)
  if whole then
    redis.call('DEL', worker_key(name))
    redis.call('SREM', K_workers, worker_key(name))
    redis.call('SREM', FLEET, name)
    removed = removed or {}
    removed[name] = true
  else
    again = 1
  end
  return recovered
end

local function told(found)
  write_tallies()
  reopen_all(queues)
  if removed then hand_on(removed) end
  return { again, unpack(found) }
end

if A_name ~= '' then
  local known = redis.call('HGET', worker_key(A_name), 'incarnation')
  if A_incarnation ~= '' and known and known ~= A_incarnation then return { 0 } end
  if not known and redis.call('EXISTS', worker_key(A_name)) == 1 then return { 0 } end -- another program's
  return told({ A_name, remove(A_name, A_reason ~= '' and A_reason or 'worker ' .. A_name .. ' died') })
end
local held, found = now_ms < hold_until(tonumber(A_lease_ms)), {}

-- Whether a worker is Fusion's, not stock RQ's. Of one without a hash, which Redis forgets some minutes after its last
-- sign of life, `rq:fleet` has it.
local function is_fusions(key, incarnation)
  if incarnation then return true end
  return redis.call('EXISTS', key) == 0 and redis.call('SISMEMBER', FLEET, worker_of(key)) == 1
end

for _, key in ipairs(redis.call('SMEMBERS', K_workers)) do
  if #found >= 2 * A_limit or again == 1 then break end
  local beat, lease, incarnation = unpack(redis.call('HMGET', key, 'beat_ms', 'lease_ms', 'incarnation'))
  local ours = is_fusions(key, incarnation)
  local silent = ours and silence(key, beat)
  if ours and not held and (not silent or silent > (tonumber(lease) or tonumber(A_lease_ms))) then
    local name = worker_of(key)
    found[#found + 1] = name
    found[#found + 1] = remove(name, 'ProcessPrunedError: worker ' .. name .. ' stopped giving signs of life')
  end
end
-- `reap` went before: really, or not long ago. With work left, all others do both, too.
local last, more = unpack(redis.call('HMGET', REAP, 'last', 'more'))
if again == 0 and #found < 2 * A_limit and last and more ~= '1' then
  local running = redis.pcall('ZCOUNT', OPERATIONS, '+inf', '+inf')
  tell(A_duties, 'recover', now_ms - last, type(running) == 'number' and running or 0)
end
return told(found)
