-- open_batch: a batch comes into being, perhaps as a member of another.
-- KEYS: batches due
-- ARGV: batch nonce parent by open_ms keep_ms n_pairs
-- INCLUDE: writer batch_keys time batch
-- Rest: pairs (fields of its hash)
-- Returns: {'ok', created_at} | {'duplicate'} | {'deep'} | {missing | closed | canceled: why the parent takes no more}
-- Same nonce again is a resend and answers ok.
local DEEPEST = 5
local key = batch_key(A_batch)
local created, nonce = unpack(redis.call('HMGET', key, 'created_at', 'nonce'))
if created then return nonce == A_nonce and { 'ok', created } or { 'duplicate' } end
local depth = 1
if A_parent ~= '' then
  local why = refuses_more(A_parent, A_by)
  if why then return { why } end
  depth = 1 + (tonumber(redis.call('HGET', batch_key(A_parent), 'depth')) or 1)
  if depth > DEEPEST then return { 'deep' } end
end
redis.call('ZADD', K_batches, now_ms, A_batch)
redis.call('ZADD', K_due, now_ms + A_open_ms, A_batch)
redis.call('HSET', key, 'created_at', now_iso, 'nonce', A_nonce, 'depth', depth, 'open_ms', A_open_ms, 'open_until',
  now_ms + A_open_ms, 'keep_ms', A_keep_ms)
if tonumber(A_n_pairs) > 0 then redis.call('HSET', key, unpack(ARGV, REST, REST + A_n_pairs - 1)) end
if A_parent ~= '' then
  redis.call('HSET', key, 'parent', A_parent)
  enter_batch(A_parent, '#' .. A_batch)
end
return { 'ok', now_iso }
