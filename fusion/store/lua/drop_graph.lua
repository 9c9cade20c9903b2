-- drop_graph: a graph is given up: its jobs are deleted, some at a time, by whoever releases others.
-- ARGV: token
-- INCLUDE: writer releasing
-- Returns: ok
give_up(A_token)
return 'ok'
