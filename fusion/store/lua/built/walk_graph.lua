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
--@walk_graph.lua:16
local most, left, most_children, named = tonumber(argv[1]), tonumber(argv[3]), tonumber(argv[2]), argv[4] + 0
local first, n_values = 6 + argv[5], argv[5] + 2
local ids, ways, met_up, met_down, found, wrong = {}, {}, {}, {}, {}, {}
local at, size, none, fits, failed = 1, 0, {}, true, nil
--@walk_graph.lua:21
local function ask(kind, command, key, ...)
local reply = redis.pcall(command, key, ...)
if type(reply) ~= 'table' or not reply.err then return reply end
if string.find(reply.err, 'WRONGTYPE', 1, true) then
wrong[#wrong + 1] = { key, kind }
else
failed = failed or reply
end
end
--@walk_graph.lua:34
local function listed(text)
local ok, members = pcall(cjson.decode, text)
return ok and type(members) == 'table' and members or {}
end
--@walk_graph.lua:39
local function add_parents(members)
left = left - 3 * #members
for _, member in ipairs(members) do
if not met_up[member] and #ids < most and type(member) == 'string' then
local id = string.match(member, '^[?~]?(.*)$')
if not met_up[id] then ids[#ids + 1], ways[#ids + 1] = id, 'u' end
met_up[member], met_up[id] = true, true
end
end
end
--@walk_graph.lua:50
local function add_children(children)
left = left - 4 * #children
for _, child in ipairs(children) do
local met = met_down[child]
if met ~= at then
size = size + 1
found[size] = child
if met then
met_down[child] = at
elseif #ids < most then
met_down[child], ids[#ids + 1], ways[#ids + 1] = at, child, 'd'
end
end
end
end
--@walk_graph.lua:67
local function further_of(id)
local parts, key = {}, (P .. 'job:' .. id .. ':parents')
for _, part in ipairs(ask('a hash', 'HMGET', key, '1', '2', '3', '4', '5', '6', '7', '8', '9', '10') or {}) do
if part then parts[#parts + 1] = part end
end
left = left - 25
if (at == 1 or (3 * named * #parts) <= left) then return parts end
end
--@walk_graph.lua:77
local function children_of(id)
local children, dependents = (P .. 'job:' .. id .. ':children'), (P .. 'job:' .. id .. ':dependents')
local open = ask('a sorted set', 'ZRANGE', children, '0', '50') or none
if #open > 50 then
left = left - 4 * #open
local count = math.min(redis.call('ZCARD', children), most_children)
if not (at == 1 or (4 * count) <= left) then return end
open = redis.call('ZRANGE', children, 0, count - 1)
elseif not open[1] then
local some = ask('a set', 'SSCAN', dependents, '0', 'COUNT', '50')
if not some or some[1] == '0' then return none, some and some[2] or none end
left = left - 4 * #some[2]
end
local count = ask('a set', 'SCARD', dependents) or 0
if count <= #open then return open, none end
if not (at == 1 or (4 * (#open + math.min(count, most_children))) <= left) then return end
left = left - 10
if count <= most_children then return open, redis.call('SMEMBERS', dependents) end
return open, redis.call('SSCAN', dependents, 0, 'COUNT', most_children)[2]
end
--@walk_graph.lua:98
for nth = first, #argv do
local way, id = string.sub(argv[nth], 1, 1), string.sub(argv[nth], 2)
ids[#ids + 1], ways[#ids + 1] = id, way
met_up[id], met_down[id] = met_up[id] or way ~= 'd', met_down[id] or way ~= 'u'
end
while ids[at] and at <= most and left > 0 and fits and not failed do
local way, id, before = ways[at], ids[at], size
local row = ask('a hash', 'HMGET', (P .. 'job:' .. id), 'status', 'parents', unpack(argv, 6, first - 1)) or none
left = left - 27 - 3 * n_values
size = size + 1
found[size] = way .. id
for nth = 1, n_values do found[size + nth] = row[nth] or false end
size = size + n_values
local text, n_parents, further, open, ever = row[1] and row[2], 0, none, none, none
if text and way ~= 'd' then
local parents = listed(text)
n_parents = #parents
add_parents(parents)
end
if n_parents >= named or text and way == 'd' and #text > 4 * named and redis.call('EXISTS', (P .. 'job:' .. id .. ':parents')) == 1 then
further = further_of(id)
end
if further and way ~= 'u' then
left = left - 15
open, ever = children_of(id)
end
fits = further and open
if not fits then found[before + 1] = nil end
if further and further[1] then
for _, part in ipairs(further) do
size = size + 1
found[size] = part
if way ~= 'd' then add_parents(listed(part)) end
end
end
size = size + 1
found[size] = false
if fits and way ~= 'u' then
if open[1] then add_children(open) end
size = size + 1
found[size] = false
if ever[1] then add_children(ever) end
size = size + 1
found[size] = false
end
at = at + 1
end
if failed then return error_reply(failed) end
return { found, wrong }
