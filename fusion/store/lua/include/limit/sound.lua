-- Before a job with a concurrency key is written down: whether what is written down of its key can be used. A key of
-- Redis that holds something else would show only in the middle, and nothing takes back what was written before.
-- INCLUDE: keys
-- RARE: broken_limit
local sound = {} -- by key and queue, of this call

-- In words, as an error of Redis; nil if all is as it should be. By commands that those who only enqueue may use.
local function broken_limit(name, queue)
  if sound[name .. ' ' .. queue] then return nil end
  local blocked = P .. 'blocked:' .. queue
  local found = redis.pcall('HGET', limit_key(name), 'max')
  if type(found) == 'table' and found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
    return 'WRONGTYPE the concurrency key ' .. name .. ' is broken at ' .. limit_key(name)
  end
  for _, key in ipairs({ holders_key(name), queue_up_key(name), LIMITS, LIMITS_DUE, blocked }) do
    local count = redis.pcall('ZCARD', key)
    if type(count) == 'table' and string.find(count.err, 'WRONGTYPE', 1, true) then
      return 'WRONGTYPE the concurrency key ' .. name .. ' is broken at ' .. key
    end
  end
  sound[name .. ' ' .. queue] = true
  return nil
end
