-- KEYS: events sink parked
-- ARGV: sink epoch n at_ms parked_max n_ids
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
end
--@events_ack.lua:9
local n_ids = tonumber(argv[6])
local delivered, parked = 0, 0
for first = 1, n_ids, 1000 do
delivered = delivered + command('XACK', KEYS[1], argv[1], unpack(argv, 7 + first - 1,
7 + math.min(first + 999, n_ids) - 1))
end
for at = 7 + n_ids, #argv, 3 do
if command('XACK', KEYS[1], argv[1], argv[at]) == 1 then
command('XADD', KEYS[3], '*', 'why', argv[at + 1], 'document', argv[at + 2])
parked = parked + 1
end
end
if parked > 0 then
local over = command('XTRIM', KEYS[3], 'MAXLEN', argv[5])
if over > 0 then command('HINCRBY', KEYS[2], 'dropped', over) end
end
if delivered > 0 then command('HINCRBY', KEYS[2], 'delivered', delivered) end
if delivered + parked > 0 then
command('HSET', KEYS[2], 'epoch', argv[2], 'n', argv[3], 'at_ms', argv[4])
command('HDEL', KEYS[2], 'failing_since', 'failures', 'breaker')
end
return { delivered, parked }
