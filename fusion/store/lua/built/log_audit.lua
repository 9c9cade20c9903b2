-- ARGV: nonce
-- FLAGS: allow-oom
--@
local command = redis.call
--@include/lib/writer.lua:4
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
local by = command('HGET', P .. 'schema', 'fusion') or ''
return redis.error_reply('FUSION_SCHEMA ' .. (schema[2] or 0) .. ' ' .. schema[1] .. ' ' .. by)
end
--@log_audit.lua:10
if command('SET', P .. 'events:said:' .. ARGV[1], 1, 'PX', 60000, 'NX') then
command('XADD', P .. 'audit', 'MAXLEN', '~', 20000, '*', unpack(ARGV, 2))
end
return 1
