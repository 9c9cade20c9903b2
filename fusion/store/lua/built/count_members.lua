-- ARGV: batch first most
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
--@count_members.lua:8
local members = redis.call('ZRANGE', (P .. 'batch:' .. argv[1] .. ':members'), argv[2], argv[2] + argv[3] - 1)
local open_key, ended_key, counts = (P .. 'batch:' .. argv[1] .. ':open'), (P .. 'batch:' .. argv[1] .. ':ended'), {}
--@count_members.lua:11
local function outcome_of(id)
if redis.call('SISMEMBER', open_key, id) == 1 then return 'open' end
return redis.call('HGET', ended_key, id) or 'finished'
end
--@count_members.lua:17
local function called(key)
if redis.call('HEXISTS', key, 'serializer') == 1 or redis.call('HSTRLEN', key, 'data') > 4096 then return '' end
return string.match(redis.call('HGET', key, 'data') or '', '^%["([%w_.]+)"') or ''
end
--@count_members.lua:22
for _, id in ipairs(members) do
local func, state = '#', nil
if string.sub(id, 1, 1) ~= '#' then
local key = (P .. 'job:' .. id)
local row = redis.pcall('HMGET', key, 'status', 'func')
if row.err and not string.find(row.err, 'WRONGTYPE', 1, true) then return error_reply(row) end
state, func = row[1], row[2] or row[1] and called(key) or ''
end
state = state or outcome_of(id)
local of = counts[func] or {}
counts[func] = of
of[state] = (of[state] or 0) + 1
end
local answer = { #members }
for func, of in pairs(counts) do
for state, count in pairs(of) do answer[#answer + 1] = { func, state, count } end
end
return answer
