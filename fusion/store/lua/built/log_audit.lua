-- ARGV: nonce
-- FLAGS: allow-oom
--@include/lib/writer.lua:4
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[2] or 0) .. ' ' .. schema[1] .. ' ' .. (schema[3] or ''))
end
--@include/lib/note_audit.lua:6
local function note_audit(nonce, ...)
if redis.call('SET', P .. 'events:said:' .. nonce, 1, 'PX', 60000, 'NX') then
redis.call('XADD', P .. 'audit', 'MAXLEN', '~', 20000, '*', ...)
end
end
--@log_audit.lua:7
note_audit(ARGV[1], unpack(ARGV, 2))
return 1
