-- KEYS: probation
-- ARGV: incarnation ttl_ms keep n_sets
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
--@hold_probation.lua:11
local holder = command('GET', KEYS[1])
if holder and holder ~= argv[1] then return 0 end
local wanted = holder and argv[3] == '1'
if not wanted and command('EXISTS', P .. 'suspended') == 0 then
for i = 5, 5 + argv[4] - 1 do
local queue = string.match(argv[i], '^%a+:([^:]+)')
local open = queue and command('EXISTS', (P .. 'paused:' .. queue)) == 0
if open and command('EXISTS', P .. 'waits:' .. argv[i]) == 1 then wanted = true end
end
end
if wanted then
command('SET', KEYS[1], argv[1], 'PX', argv[2])
return 1
end
command('DEL', KEYS[1])
return 0
