-- KEYS: job
-- ARGV: copy
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
--@note_copy.lua:7
local job = command('HMGET', KEYS[1], 'status', 'seq', 'copied_to')
if not job[1] then return 'missing' end
if not job[2] and command('HEXISTS', KEYS[1], 'success_callback_name') == 1 then return 'foreign' end
local known = {}
for id in string.gmatch(string.sub(job[3] or '', 1, 2000), '%S+') do
if id == ARGV[1] then return 'ok' end
known[#known + 1] = id
end
known[#known + 1] = ARGV[1]
command('HSET', KEYS[1], 'copied_to', table.concat(known, ' ', math.max(1, #known - 9)))
return 'ok'
