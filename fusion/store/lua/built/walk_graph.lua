-- ARGV: most most_children work named n_fields
--@
local argv = ARGV
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
end
--@include/lib/keys.lua:132
local function error_reply(err)
local text = error_text(err)
return redis.error_reply(string.match(text, '[A-Z]+ .+') or text)
end
--@walk_graph.lua:13
local most, most_children, left = tonumber(argv[1]), tonumber(argv[2]), tonumber(argv[3])
local first, wrong, met, line, found, at = 6 + argv[5], {}, {}, {}, {}, 1
local failed
--@walk_graph.lua:17
local function ask(kind, command, key, ...)
local reply = redis.pcall(command, key, ...)
if type(reply) ~= 'table' or not reply.err then return reply end
if string.find(reply.err, 'WRONGTYPE', 1, true) then
wrong[#wrong + 1] = { key, kind }
else
failed = failed or reply
end
end
--@walk_graph.lua:27
local function add(way, id)
if #line < most and not met[way .. id] then
met[way .. id] = true
line[#line + 1] = way .. id
end
end
--@walk_graph.lua:35
local function listed(text)
local ok, members = pcall(cjson.decode, text)
return ok and type(members) == 'table' and members or {}
end
--@walk_graph.lua:40
local function add_parents(members)
left = left - #members
for _, member in ipairs(members) do
if type(member) == 'string' then add('u', string.match(member, '^[?~]?(.*)$')) end
end
end
--@walk_graph.lua:48
local function some_of(key)
local count = ask('a set', 'SCARD', key) or 0
if count == 0 then return {} end
if count <= most_children then return ask('a set', 'SMEMBERS', key) or {} end
return (ask('a set', 'SSCAN', key, 0, 'COUNT', most_children) or {})[2] or {}
end
--@walk_graph.lua:55
for nth = first, #argv do
line[#line + 1] = argv[nth]
local way, id = string.sub(argv[nth], 1, 1), string.sub(argv[nth], 2)
met['u' .. id], met['d' .. id] = met['u' .. id] or way ~= 'd', met['d' .. id] or way ~= 'u'
end
while line[at] and at <= most and left > 0 and not failed do
local way, id = string.sub(line[at], 1, 1), string.sub(line[at], 2)
local row = ask('a hash', 'HMGET', (P .. 'job:' .. id), 'status', 'parents', unpack(argv, 6, first - 1)) or false
left = left - 13
local further, open, ever, text = {}, {}, {}, row and row[1] and row[2]
if text and (way ~= 'd' or #text > 4 * argv[4]) then
local parents = listed(text)
if way ~= 'd' then add_parents(parents) end
if #parents >= tonumber(argv[4]) then
for _, part in ipairs(ask('a hash', 'HMGET', (P .. 'job:' .. id .. ':parents'), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) or {}) do
if part then
further[#further + 1] = part
if way ~= 'd' then add_parents(listed(part)) end
end
end
end
end
if way ~= 'u' then
open = ask('a sorted set', 'ZRANGE', (P .. 'job:' .. id .. ':children'), 0, most_children - 1) or {}
ever = some_of((P .. 'job:' .. id .. ':dependents'))
left = left - 5 - #open - #ever
for _, child in ipairs(open) do add('d', child) end
for _, child in ipairs(ever) do add('d', child) end
end
found[at], at = { line[at], row, further, open, ever }, at + 1
end
if failed then return error_reply(failed) end
return { found, wrong }
