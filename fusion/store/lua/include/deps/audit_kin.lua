-- Looks whether jobs that wait for others still have somebody to wait for, and whether ended parents are still wanted,
-- some of them at a time. What is found is a mistake of Fusion's, or somebody removed the parent by hand: those that
-- wait learn of it as if it had happened now. Jobs that wait for each other fail: the search of an enqueue is
-- shorter than this one.
-- INCLUDE: keys time releasing kin cycle end_job states
-- RARER: audit_child audit_deferred audit_pinned end_circle
local AUDITED_KIN = 20
local AUDITED_ANCESTORS, MOST_ENDED = 1000, 50 -- a call
local ancestors_left = AUDITED_ANCESTORS

-- Whether it waits for itself. Then those of its circle fail, a limited number; the others go by the outcome of these.
local function end_circle(id)
  if ancestors_left <= 0 then return false end
  local batch, as = unpack(redis.call('HMGET', job_key(id), 'batch', 'batch_as'))
  local path, looked = cycle_of(id, redis.call('SRANDMEMBER', unmet_key(id), ancestors_left), nil, ancestors_left,
      batch and not as and batches_around(batch))
  ancestors_left = ancestors_left - looked
  if not path then return false end
  local why = 'it waited for itself: ' .. cycle_text(path)
  for i = 1, math.min(#path - 1, MOST_ENDED) do
    local key = job_key(path[i])
    local status, queue, calls = unpack(redis.call('HMGET', key, 'status', 'origin', 'batch_as'))
    if status == 'deferred' and not calls then -- what a batch calls back has its end to wait for
      fail_deferred(path[i], key, queue, 'fusion.exceptions.DependencyCycle', why)
    end
  end
  ancestors_left = 0
  return true
end

local function audit_child(id)
  local status, ties, graph, arrival = unpack(redis.call('HMGET', job_key(id), 'status', 'ties', 'graph', 'arrival'))
  if status ~= 'deferred' or graph or not ties or not string.find(ties, 'p', 1, true) or string.find(ties, 'h', 1, true)
      then
    return
  end
  local unmet = redis.call('SRANDMEMBER', unmet_key(id), AUDITED_KIN)
  if not unmet[1] then return do_later('u ' .. id) end
  if end_circle(id) then return end
  for _, member in ipairs(unmet) do
    local sign, parent = parent_in(member)
    local how = redis.pcall('HGET', job_key(parent), 'status')
    local over = not how or is_terminal(how)
    if string.sub(member, 1, 1) ~= '*' and not (how and how ~= 'finished' and over and sign == '~') then
      redis.call('ZADD', children_key(parent), 'NX', tonumber(arrival) or 0, id)
      if over then do_later('c ' .. parent) end
    end
  end
end

local function audit_deferred(queue)
  local deferred = set_of('deferred', queue)
  local size = redis.call('ZCARD', deferred)
  if size == 0 then return end
  local from = size > AUDITED_KIN and now_us % size or 0
  for _, id in ipairs(redis.call('ZRANGE', deferred, from, from + AUDITED_KIN - 1)) do pcall(audit_child, id) end
end

-- Of those that have been pinned, or were looked at, a minute ago.
local function audit_pinned()
  local found = redis.call('ZRANGEBYSCORE', P .. 'pinned', '-inf', now_ms - 60000, 'LIMIT', 0, AUDITED_KIN)
  for _, id in ipairs(found) do
    local children = children_key(id)
    local size = redis.call('ZCARD', children)
    local from = size > AUDITED_KIN and now_us % size or 0
    for _, child in ipairs(redis.call('ZRANGE', children, from, from + AUDITED_KIN - 1)) do
      local status = redis.call('HGET', job_key(child), 'status')
      if not status or is_terminal(status) then redis.call('ZREM', children, child) end
    end
    redis.call('ZADD', P .. 'pinned', 'XX', now_ms, id)
    if redis.call('EXISTS', children) == 0 then unpin(id) end
  end
end
