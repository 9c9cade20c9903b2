-- KEYS: job
-- ARGV: execution meta
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
--@include/lib/writer.lua:4
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
local by = command('HGET', P .. 'schema', 'fusion') or ''
return redis.error_reply('FUSION_SCHEMA ' .. (schema[2] or 0) .. ' ' .. schema[1] .. ' ' .. by)
end
--@save_meta.lua:7
local job = command('HMGET', KEYS[1], 'status', 'execution_id', 'seq')
if not job[1] then return 'missing' end
if not job[3] and command('HEXISTS', KEYS[1], 'success_callback_name') == 1 then return 'foreign' end
if argv[1] ~= '' and (job[1] ~= 'started' or job[2] ~= argv[1]) then return 'stale' end
command('HSET', KEYS[1], 'meta', argv[2])
return 'ok'
