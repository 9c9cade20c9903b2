-- release_graph: the last job of a graph has come, and all of them may begin.
-- ARGV: token queue first nonce
-- INCLUDE: writer keys ring releasing
-- Returns: ok | dropped (it was given up; `first`, the id of its first job, tells that from a resend)
-- No allow-oom in the calls of a graph: they are an enqueue, and producers may not ask which version the server is of.
-- A resend writes what changes nothing, as that of `enqueue` does: WAIT behind it is to wait.
if not redis.call('ZSCORE', GRAPHS, A_token) then
  local nonce, func, own = unpack(redis.call('HMGET', job_key(A_first), 'nonce', 'func', 'graph'))
  local there = (nonce or func and A_first) == A_nonce
  if not there or own and not redis.call('ZSCORE', P .. 'releasing', 'g ' .. A_token) then return 'dropped' end
  local ttl = redis.call('PTTL', job_key(A_first))
  redis.call('PEXPIRE', job_key(A_first), ttl < 0 and 60000 or math.max(ttl, 1))
  if ttl < 0 then redis.call('PERSIST', job_key(A_first)) end
  return 'ok'
end
do_later('g ' .. A_token)
redis.call('ZREM', GRAPHS, A_token)
ring(A_queue)
return 'ok'
