-- count_members: how many of some members of a batch call which function and are in which state. Changes nothing.
-- ARGV: batch first most
-- INCLUDE: keys
-- `first`: how many to leave out, `most`: how many to look at
-- Returns: {how many were looked at, {function, state, count}...}; the function is `#` for a batch in it, and empty if
--   it is not known. A batch, and a job that is gone, have their outcome in place of a state, or `open`
local MOST_BYTES = 4096 -- of a call that is looked into
local members = redis.call('ZRANGE', batch_members_key(A_batch), A_first, A_first + A_most - 1)
local open_key, ended_key, counts = batch_open_key(A_batch), batch_ended_key(A_batch), {}

local function outcome_of(id)
  if redis.call('SISMEMBER', open_key, id) == 1 then return 'open' end
  return redis.call('HGET', ended_key, id) or 'finished'
end

-- The function of a record of an older layout, or of another program: the call begins with its name.
local function called(key)
  if redis.call('HEXISTS', key, 'serializer') == 1 or redis.call('HSTRLEN', key, 'data') > MOST_BYTES then return '' end
  return string.match(redis.call('HGET', key, 'data') or '', '^%["([%w_.]+)"') or ''
end

for _, id in ipairs(members) do
  local func, state = '#', nil
  if string.sub(id, 1, 1) ~= '#' then
    local key = job_key(id)
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
