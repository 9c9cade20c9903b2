-- Whoever opens a batch promises the jobs that it calls back, and brings them afterwards, in several calls if they are
-- of several queues. If that process died before, it is as if it had not begun: another may open the batch, or it goes.
-- INCLUDE: keys releasing
-- RARER: has_come is_opened give_up_callbacks

-- Whether the one for this end, `complete` or `success`, has come, and stays.
local function has_come(batch, as)
  local id, called = unpack(redis.call('HMGET', batch_key(batch), 'on_' .. as, as .. '_called'))
  if not id or called then return true end
  local own, graph = unpack(redis.call('HMGET', job_key(id), 'batch', 'graph'))
  return own == batch and not is_coming(graph)
end

local function is_opened(batch) return has_come(batch, 'complete') and has_come(batch, 'success') end

-- What has come of them in a call that was not to be the last does not stay.
local function give_up_callbacks(batch)
  for _, name in ipairs({ 'on_complete', 'on_success' }) do
    local id = redis.call('HGET', batch_key(batch), name)
    local own, graph = unpack(id and redis.call('HMGET', job_key(id), 'batch', 'graph') or {})
    if own == batch and graph and redis.call('ZSCORE', GRAPHS, graph) then give_up(graph) end
  end
end
