-- open_batch: a batch comes into being, perhaps as a member of another.
-- KEYS: batches due
-- ARGV: batch nonce parent by open_ms keep_ms n_pairs
-- INCLUDE: writer keys time batch promised
-- Rest: pairs (fields of its hash)
-- Returns: {'ok', created_at} | {'duplicate'} | {'deep'} | {missing | closed | canceled: why the parent takes no more}
-- Same nonce again is a resend and answers ok. If what it is to call back has not come, another may open it: then it is
-- that one's, what has come of the first one's goes, and what that brings too late is refused (`refuses_more`).
local DEEPEST = 5
local key = batch_key(A_batch)
local created, nonce, closed, around = unpack(redis.call('HMGET', key, 'created_at', 'nonce', 'closed_at', 'parent'))

if nonce == A_nonce then return { 'ok', created } end
if created and (closed or (around or '') ~= A_parent or is_opened(A_batch)) then
  return { 'duplicate' }
end
local depth = 1
if created then
  give_up_callbacks(A_batch)
  redis.call('HDEL', key, 'name', 'on_complete', 'on_success')
  redis.call('HSET', key, 'kept', 1) -- for these jobs members may have been
elseif A_parent ~= '' then
  local why = refuses_more(A_parent, A_by)
  if why then return { why } end
  depth = 1 + (tonumber(redis.call('HGET', batch_key(A_parent), 'depth')) or 1)
  if depth > DEEPEST then return { 'deep' } end
end
if not created then redis.call('HSET', key, 'created_at', now_iso, 'depth', depth) end
redis.call('ZADD', K_batches, 'NX', now_ms, A_batch)
redis.call('ZADD', K_due, now_ms + A_open_ms, A_batch)
redis.call('HSET', key, 'nonce', A_nonce, 'open_ms', A_open_ms, 'open_until', now_ms + A_open_ms, 'keep_ms', A_keep_ms)
if tonumber(A_n_pairs) > 0 then redis.call('HSET', key, unpack(ARGV, REST, REST + A_n_pairs - 1)) end
if not created and A_parent ~= '' then
  redis.call('HSET', key, 'parent', A_parent)
  enter_batch(A_parent, '#' .. A_batch)
end
return { 'ok', created or now_iso }
