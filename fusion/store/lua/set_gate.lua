-- set_gate: set what holds for one queue from now on, or take it back.
-- ARGV: queue n_pairs
-- INCLUDE: writer keys queue_gate
-- FLAGS: allow-oom
-- Rest: name value pairs; an empty value takes back
-- Returns: all that is set for the queue now; an empty text for nothing
-- What closed the queue may be over: one worker looks.
local given, words = {}, {}
for i = REST, REST + A_n_pairs - 1, 2 do given[ARGV[i]] = ARGV[i + 1] end
-- names that a newer version set are kept
for name, value in string.gmatch(redis.call('HGET', GATES, A_queue) or '', '([^%s=]+)=(%S+)') do
  if not given[name] then words[#words + 1] = name .. '=' .. value end
end
for i = REST, REST + A_n_pairs - 1, 2 do
  if ARGV[i + 1] ~= '' then words[#words + 1] = ARGV[i] .. '=' .. ARGV[i + 1] end
end
local text = table.concat(words, ' ')
if text == '' then
  redis.call('HDEL', GATES, A_queue)
  redis.call('DEL', gate_key(A_queue))
else
  redis.call('HSET', GATES, A_queue, text)
end
reopen(A_queue, true)
return text
