-- drop_graph: a graph is given up: its jobs are deleted, some at a time, by whoever releases others.
-- ARGV: token
-- INCLUDE: writer kin_keys releasing
-- Returns: ok
do_later('x ' .. A_token)
redis.call('ZREM', GRAPHS, A_token)
return 'ok'
