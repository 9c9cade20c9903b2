-- KEYS: events sink parked
-- ARGV: sink epoch n at_ms parked_max n_ids
-- FLAGS: allow-oom
--@
local command = redis.call
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
end
--@events_ack.lua:9
local n_ids = tonumber(ARGV[6])
local delivered, parked = 0, 0
for first = 1, n_ids, 1000 do
delivered = delivered + command('XACK', KEYS[1], ARGV[1], unpack(ARGV, 7 + first - 1,
7 + math.min(first + 999, n_ids) - 1))
end
for at = 7 + n_ids, #ARGV, 3 do
if command('XACK', KEYS[1], ARGV[1], ARGV[at]) == 1 then
command('XADD', KEYS[3], '*', 'why', ARGV[at + 1], 'document', ARGV[at + 2])
parked = parked + 1
end
end
if parked > 0 then
local over = command('XTRIM', KEYS[3], 'MAXLEN', ARGV[5])
if over > 0 then command('HINCRBY', KEYS[2], 'dropped', over) end
end
if delivered > 0 then command('HINCRBY', KEYS[2], 'delivered', delivered) end
if delivered + parked > 0 then
command('HSET', KEYS[2], 'epoch', ARGV[2], 'n', ARGV[3], 'at_ms', ARGV[4])
command('HDEL', KEYS[2], 'failing_since', 'failures', 'breaker')
end
return { delivered, parked }
