-- What states mean: written by `make lua` from fusion/kernel/states.py.

local function is_terminal(status)
  return status == 'finished' or status == 'stopped' or status == 'canceled' or status == 'failed'
end

-- Whether a job stands in another set than its queue. Of a hash with no status, or one we don't know, an old producer
-- is the writer.
local function is_elsewhere(status)
  return status == 'started' or status == 'blocked' or status == 'scheduled' or status == 'deferred'
    or is_terminal(status)
end

local function may_be_requeued(status)
  return status == 'failed' or status == 'canceled' or status == 'stopped'
end
