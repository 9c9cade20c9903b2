-- endpoint_gone: an endpoint said that it wants no more callbacks (410).
-- KEYS: gone
-- ARGV: digest keep
-- FLAGS: allow-oom
-- INCLUDE: time
-- Returns: 1 if that is news, else 0
-- URLs may be of one job only: of more than `keep` those that were told first are forgotten.
local added = redis.call('ZADD', K_gone, 'NX', now_ms / 1000, A_digest)
redis.call('ZREMRANGEBYRANK', K_gone, 0, -1 - A_keep)
return added
