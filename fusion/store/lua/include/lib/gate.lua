-- What is set for single queues: `rq:gates` holds, by queue, texts `name=value` with a space between, times in ms. The
-- key exists only while something is set. fusion/store/layout/gates.py is the other half of this table.
-- INCLUDE: keys
-- RARER: gate_value gate_of
-- Exports: gate_texts
local gate_texts = {} -- texts by queue, as far as this call has looked; false: nothing is set

-- All that is set for the queue. For a user of before, who may not read the key, nothing is.
local function gate_of(queue)
  if gate_texts[queue] == nil then
    local text = redis.pcall('HGET', GATES, queue)
    gate_texts[queue] = type(text) == 'string' and text
  end
  return gate_texts[queue]
end

-- A value of such a text, as text; nil if it is not set.
local function gate_value(text, name) return text and string.match(' ' .. text, ' ' .. name .. '=(%S+)') or nil end
