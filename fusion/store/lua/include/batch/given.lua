-- A step of a chain (`g` among its ties) is given what its parent returned: a claim copies it, once, into the step's
-- own record. The parent is there: it is not forgotten before its children have ended.
-- INCLUDE: keys
-- RARER: take_given
local function take_given(key)
  local given, parents = unpack(redis.call('HMGET', key, 'given', 'parents'))
  local parent = not given and string.match(parents or '', '^%["[?~]?([%w_-]+)"')
  if not parent then return end
  local status, result, serializer = unpack(redis.call('HMGET', job_key(parent), 'status', 'result', 'serializer'))
  if status ~= 'finished' then return end
  redis.call('HSET', key, 'given', result or 'null')
  if result and serializer == 'pickle' then redis.call('HSET', key, 'given_as', 'pickle') end
end
