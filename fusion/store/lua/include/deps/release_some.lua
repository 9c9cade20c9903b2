-- What `rq:releasing` names is done, for a number of jobs. Whoever calls it calls `ring_released` at the end.
-- INCLUDE: keys time count emit ties undefer kin settle_children attach forget releasing states
-- RARER: release_some attach_again work_off_graph
-- Uses: tied
local PUT_OFF_MS = 30000 -- ms until what can't be worked_off (a broken key) is tried again
local work_left, worked_off = 0, 0

-- A child with many parents was put back: it waits for those that have not ended.
local function attach_again(id)
  local key, parents = job_key(id), parents_key(id)
  local status, arrival, queue = unpack(redis.call('HMGET', key, 'status', 'arrival', 'origin'))
  if status ~= 'deferred' then return true end
  while work_left > 0 do
    local nth = tonumber(redis.call('HGET', parents, 'again') or 0) + 1
    local text = redis.call('HGET', parents, nth)
    if not text then
      redis.call('HDEL', parents, 'again')
      redis.call('SREM', unmet_key(id), '*again')
      if redis.call('EXISTS', unmet_key(id)) == 0 then undefer(id, key, queue) end
      return true
    end
    attach(id, parents_of(text), tonumber(arrival) or 0, true)
    redis.call('HSET', parents, 'again', nth)
    work_left = work_left - 50
  end
  return false
end

-- The jobs of a graph of which the last has come: those that wait for nobody else enter their queues. Or, of one that
-- was given up, they are deleted.
local function work_off_graph(kind, token)
  local graph = graph_key(token)
  for _, id in ipairs(redis.call('ZRANGE', graph, 0, work_left - 1)) do
    local key = job_key(id)
    local status, own, queue, doomed, log_tag, ties, seq, class = unpack(redis.call('HMGET', key, 'status', 'graph',
        'origin', 'doomed', 'log_tag', 'ties', 'seq', 'priority'))
    if own == token and kind == 'x' then
      tied[key] = ties
      local counters = counters_of_key(key)
      forget(id, key, status, queue)
      if not is_terminal(status) then tally('deleted', queue, class, counters) end
      emit('deleted', id, queue, log_tag)
      redis.call('ZREM', P .. 'releasing', 'u ' .. id)
    elseif own == token then
      redis.call('SREM', unmet_key(id), '*' .. token)
      redis.call('HDEL', key, 'graph', 'doomed')
      if string.find(ties or '', 'h', 1, true) then redis.call('ZADD', P .. 'releasing', 'XX', now_ms, 'u ' .. id) end
      if status == 'deferred' and doomed then
        fail_child(id, key, queue, string.match(doomed, '^(%S+) (.*)$'))
      elseif status == 'deferred' and redis.call('EXISTS', unmet_key(id)) == 0
          and not string.find(ties or '', 'h', 1, true) then
        undefer(id, key, queue)
      end
    end
    redis.call('ZREM', graph, id)
    work_left, worked_off = work_left - 1, worked_off + 1
  end
  return redis.call('EXISTS', graph) == 0
end

-- What is left of a thing: true if it is done with.
local function work_off(kind, id)
  if kind == 'u' then
    work_left = work_left - 1
    if is_coming(redis.call('HGET', job_key(id), 'graph')) then -- put off until that has come, or goes
      redis.call('ZADD', P .. 'releasing', now_ms + PUT_OFF_MS, 'u ' .. id)
      return false
    end
    if undefer(id, job_key(id), '') then worked_off = worked_off + 1 end
  elseif kind == 'c' or kind == 'b' then
    local limit = work_left
    work_left = work_left - settle_children(id, limit, kind == 'b')
    worked_off = worked_off + limit - work_left
    return work_left > 0
  elseif kind == 'p' then
    local key = job_key(id)
    local status, queue = unpack(redis.call('HMGET', key, 'status', 'origin'))
    work_left = work_left - 1
    if status and not is_terminal(status) then return true end -- it runs again, and has them still
    work_left = work_left - leave_parents(id, key)
    while work_left > 0 do
      local count = leave_more(id, not status)
      if not count then
        local score = status and redis.call('ZSCORE', set_of(status, queue), id)
        redis.call('ZREM', P .. 'releasing', 'p ' .. id)
        if score then expire_later(id, key, score) end
        return true
      end
      work_left = work_left - count
    end
    return false
  elseif kind == 'a' then
    return attach_again(id)
  elseif kind == 'g' or kind == 'x' then
    return work_off_graph(kind, id)
  end
  return true
end

-- An end brings more of them about: children that fail have children.
local function release_batch()
  local found = redis.call('ZRANGEBYSCORE', P .. 'releasing', '-inf', now_ms, 'LIMIT', 0, work_left)
  for _, what in ipairs(found) do
    if work_left <= 0 then return false end
    local ok, over = pcall(work_off, string.match(what, '^(%a) (.*)$'))
    if not ok then
      redis.call('ZADD', P .. 'releasing', now_ms + PUT_OFF_MS, what)
    elseif over then
      redis.call('ZREM', P .. 'releasing', what)
    end
  end
  return found[1]
end

-- Returns for how many jobs something was done.
local function release_some(limit)
  work_left = limit
  repeat until work_left <= 0 or not release_batch()
  return worked_off
end
