-- cron_run: a job of an entry now, by hand. Its ticks go on as planned.
-- KEYS: entry
-- ARGV: id rev nonce overlap queue priority ttl_ms n_pairs
-- INCLUDE: writer keys time count score ring turns sound accept cron newcomer
-- Rest: pairs (the job's fields)
-- Returns: {ok, job id} | {overlap, the job of it that has not ended} | {duplicate, the job that has its unique key} |
--   {stale (it changed), ''} | {missing, ''}
-- Events: queued
local rev, nonce, last, by_hand = unpack(redis.call('HMGET', K_entry, 'rev', 'manual_nonce', 'last_job', 'manual_job'))
if not rev then return { 'missing', '' } end
if nonce == A_nonce then return { 'ok', by_hand } end
if rev ~= A_rev then return { 'stale', '' } end
if A_overlap ~= 'allow' then
  for _, id in ipairs({ last or '', by_hand or '' }) do
    if is_live(id) then return { 'overlap', id } end
  end
end
local unique = unique_of(REST, REST + A_n_pairs - 1)
local ok, other = true, nil
if unique then ok, other = pcall(meets, unique, nil, A_queue) end
if not ok then return error_reply(other) end
if other and other.way ~= 'replace' then return { 'duplicate', other.owner } end
local concurrency_key = field_of('concurrency_key', REST, REST + A_n_pairs - 1)
local broken = concurrency_key and broken_limit(concurrency_key, A_queue)
if broken then return redis.error_reply(broken) end
local id
repeat -- past the jobs of an entry of this id that was removed
  id = 'cron-' .. A_id .. '-manual-' .. redis.call('HINCRBY', K_entry, 'manual', 1)
until redis.call('EXISTS', job_key(id)) == 0
redis.call('SADD', QUEUES, queue_key(A_queue))
local last_pair = REST + A_n_pairs - 1
local place = turn_of(A_queue, A_priority, next_seq(), field_of('fair_key', REST, last_pair) or '')
if unique then
  accept_unique(unique, A_queue, id, A_priority, nil, false, tonumber(A_ttl_ms), A_nonce, place, nil, REST, last_pair)
else
  accept(A_queue, id, A_priority, nil, false, tonumber(A_ttl_ms), A_nonce, place, nil, REST, last_pair)
end
write_tallies()
redis.call('HSET', job_key(id), 'cron', A_id)
ring(A_queue, tonumber(A_priority))
redis.call('HSET', K_entry, 'manual_nonce', A_nonce, 'manual_job', id)
note_decision(A_id, now_s, 'manual', id)
return { 'ok', id }
