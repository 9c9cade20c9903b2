-- prune: remove workers that are dead and give their jobs back.
-- KEYS: workers
-- ARGV: name incarnation reason lease_ms limit
-- FLAGS: allow-oom
-- INCLUDE: keys time count settle hold silence queue_gate
-- Returns: {name, jobs recovered, name, jobs ...}
-- Events: abandoned failed canceled stopped
-- With a name: that worker, at once (its supervisor saw it die), unless another incarnation has the name by now.
-- Without: those silent for three beats, unless an outage is just over.
local recovered, queues = 0, {}

local function give_back(id, exec, why, name)
  local key = job_key(id)
  local job = read_job(key)
  if job.status ~= 'started' or job.execution_id ~= exec then return end
  recover(id, key, job.origin, job, wip_key(job.origin), why, name)
  recovered = recovered + 1
  queues[job.origin] = true
end

local function remove(name, why)
  local held = redis.call('HGETALL', worker_jobs_key(name))
  recovered = 0
  -- one that can't be given back (a broken key) is left to its lease
  for i = 1, #held, 2 do pcall(give_back, held[i], held[i + 1], why, name) end
  redis.call('DEL', worker_key(name), worker_jobs_key(name))
  redis.call('SREM', K_workers, worker_key(name))
  redis.call('SREM', FLEET, name)
  reopen_all(queues)
  hand_on(name)
  return recovered
end

if A_name ~= '' then
  local known = redis.call('HGET', worker_key(A_name), 'incarnation')
  if A_incarnation ~= '' and known and known ~= A_incarnation then return {} end
  if not known and redis.call('EXISTS', worker_key(A_name)) == 1 then return {} end -- another program's
  local back = remove(A_name, A_reason ~= '' and A_reason or 'worker ' .. A_name .. ' died')
  write_tallies()
  return { A_name, back }
end
local held, found = now_ms < hold_until(tonumber(A_lease_ms)), {}

-- Whether a worker is Fusion's, not stock RQ's. Of one without a hash, which Redis forgets some minutes after its last
-- sign of life, `rq:fleet` says so; one of a version before that is known by what it holds.
local function is_fusions(key, incarnation)
  if incarnation then return true end
  local name = worker_of(key)
  if redis.call('EXISTS', key) == 1 then return false end
  return redis.call('SISMEMBER', FLEET, name) == 1 or redis.call('EXISTS', worker_jobs_key(name)) == 1
end

for _, key in ipairs(redis.call('SMEMBERS', K_workers)) do
  if #found >= 2 * A_limit then break end
  local beat, lease, incarnation = unpack(redis.call('HMGET', key, 'beat_ms', 'lease_ms', 'incarnation'))
  local ours = is_fusions(key, incarnation)
  local silent = ours and silence(key, beat)
  if ours and not held and (not silent or silent > (tonumber(lease) or tonumber(A_lease_ms))) then
    local name = worker_of(key)
    found[#found + 1] = name
    found[#found + 1] = remove(name, 'ProcessPrunedError: worker ' .. name .. ' stopped giving signs of life')
  end
end
write_tallies()
return found
