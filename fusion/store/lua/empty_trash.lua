-- empty_trash: what is in the trash goes for good, a bounded number at a time.
-- ARGV: limit
-- FLAGS: allow-oom
-- INCLUDE: writer trash
-- Returns: {how many went, whether there are more}
local ids = redis.call('ZRANGE', TRASH, 0, A_limit - 1)
for _, id in ipairs(ids) do drop_from_trash(id) end
return { #ids, redis.call('EXISTS', TRASH) }
