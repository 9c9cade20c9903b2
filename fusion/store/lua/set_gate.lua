-- set_gate: set what holds for one queue from now on, or take it back.
-- ARGV: queue n_pairs of_setting
-- INCLUDE: writer keys queue_gate
-- FLAGS: allow-oom
-- Rest: name value pairs; an empty value takes back
-- Returns: all that is set for the queue now; an empty text for nothing
-- `of_setting`: 1 for all that a setting says of the queue, which counts when it changes: a name for which it said the
-- same before is left as people have it, and one that it names no more is taken back unless somebody set another value.
local SAID = P .. 'gates:settings'
local held, names, given, words = redis.call('HGET', GATES, A_queue) or '', {}, {}, {}
for i = REST, REST + A_n_pairs - 1, 2 do
  names[#names + 1], given[ARGV[i]] = ARGV[i], ARGV[i + 1]
end
local function add(name, value) words[#words + 1] = name .. '=' .. value end

if A_of_setting == '1' then
  local said = redis.call('HGET', SAID, A_queue) or ''
  for _, name in ipairs(names) do add(name, given[name]) end
  local says = table.concat(words, ' ')
  if says == '' then redis.call('HDEL', SAID, A_queue) else redis.call('HSET', SAID, A_queue, says) end
  words = {}
  for name, value in string.gmatch(said, '([^%s=]+)=(%S*)') do
    if given[name] == value then
      given[name] = nil
    elseif not given[name] and gate_word(held, name) == value then
      given[name] = ''
    end
  end
end

-- names that a newer version set are kept
for name, value in string.gmatch(held, '([^%s=]+)=(%S+)') do
  if not given[name] then add(name, value) end
end
for _, name in ipairs(names) do
  if (given[name] or '') ~= '' then add(name, given[name]) end
end
local text = table.concat(words, ' ')
if A_of_setting == '1' and text == held then return text end
if text == '' then
  redis.call('HDEL', GATES, A_queue)
  redis.call('DEL', gate_key(A_queue))
else
  redis.call('HSET', GATES, A_queue, text)
end
-- what closed the queue may be over: one worker looks
reopen(A_queue, true)
return text
