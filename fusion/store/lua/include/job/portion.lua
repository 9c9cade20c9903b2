-- What a worker holds goes back by portions, each of which is one call's work; `rq:worker:<name>:jobs` has the rest.
-- INCLUDE: keys ties
local PORTION = 60 -- jobs, by weight
local portion_left = PORTION -- in this call

-- `give` (id, execution, key) gives one back. One that can't be given back (a broken key) is left to its lease. Returns
-- whether nothing is left.
local function give_portion(name, give)
  local list = worker_jobs_key(name)
  while portion_left > 0 do
    local held = redis.call('HRANDFIELD', list, portion_left, 'WITHVALUES')
    if not held[1] then return true end
    for i = 1, #held, 2 do
      local key = job_key(held[i])
      pcall(give, held[i], held[i + 1], key)
      redis.call('HDEL', list, held[i])
      portion_left = portion_left - weight_of(key)
      if portion_left <= 0 then break end
    end
  end
  return redis.call('EXISTS', list) == 0
end
