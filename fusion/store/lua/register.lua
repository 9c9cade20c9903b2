-- register: a worker enters the list of workers under its name.
-- KEYS: worker workers
-- ARGV: name incarnation lease_ms worker_ttl secret n_pairs
-- FLAGS: allow-oom
-- INCLUDE: keys member enter life
-- Rest: pairs (queues, pid, hostname, ...)
-- Returns: ok | taken (a live other has the name, or a dead one whose jobs `prune` has not given back yet)
-- Another incarnation's token goes with its hash. The same one's stays, so that a call from before is not taken for a
-- new one.
local known, beat, lease = unpack(redis.call('HMGET', K_worker, 'incarnation', 'beat_ms', 'lease_ms'))
if not known and redis.call('EXISTS', K_worker) == 1 then return 'taken' end -- by another program's worker
if known ~= A_incarnation then
  local silent = silence(K_worker, beat)
  if known and silent and silent <= (tonumber(lease) or tonumber(A_lease_ms)) then return 'taken' end
  for _, exec in ipairs(redis.call('HVALS', worker_jobs_key(A_name))) do
    if string.sub(exec, 1, #A_incarnation + 1) ~= A_incarnation .. ':' then
      redis.call('SADD', K_workers, K_worker) -- prune looks there
      return 'taken'
    end
  end
  redis.call('DEL', K_worker)
end
redis.call('SADD', K_workers, K_worker)
redis.call('SADD', FLEET, A_name)
redis.pcall('SET', P .. 'callbacks:secret', A_secret, 'NX')
redis.call('HSETNX', K_worker, 'state', 'started')
write_member(K_worker, A_worker_ttl)
local longest = tonumber(redis.call('HGET', REAP, 'lease')) or 0
if tonumber(A_lease_ms) > longest then redis.call('HSET', REAP, 'lease', A_lease_ms) end
return 'ok'
