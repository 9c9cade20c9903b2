-- add_parents: a job of a graph of which the last has not come has more parents than one call takes.
-- ARGV: id token nth n_parents
-- INCLUDE: writer keys time attach kin cycle
-- Rest: members of a list of parents
-- Returns: ok | dropped (the graph was given up) | {'missing', id, a parent of it of which there is no job} |
--   {'cycle', id, how it would wait for itself}
-- No allow-oom here: it is a part of an enqueue.
local key = job_key(A_id)
local graph, arrival, status, batch, as = unpack(redis.call('HMGET', key, 'graph', 'arrival', 'status', 'batch',
    'batch_as'))
if not redis.call('ZSCORE', GRAPHS, A_token) then -- a resend, if it has begun
  return status and (not graph or redis.call('ZSCORE', P .. 'releasing', 'g ' .. A_token)) and 'ok' or 'dropped'
end
if graph ~= A_token then return 'dropped' end
if redis.call('HGET', parents_key(A_id), A_nth) then return 'ok' end
local parents = { unpack(ARGV, REST, REST + A_n_parents - 1) }
local missing = first_missing(parents, {})
if missing then return { 'missing', A_id, missing } end
local awaited = {}
for _, member in ipairs(parents) do
  local _, one = parent_in(member)
  awaited[one] = true
end
local path = cycle_of(A_id, parents, nil, nil, batch and not as and batches_around(batch, awaited))
if path then return { 'cycle', A_id, cycle_text(path) } end
attach(A_id, parents, tonumber(arrival))
redis.call('HSET', parents_key(A_id), A_nth, cjson.encode(parents))
redis.call('ZADD', GRAPHS, 'XX', now_ms, A_token)
return 'ok'
