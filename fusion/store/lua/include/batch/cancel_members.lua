-- A batch is canceled, and with it those in it, a bounded number at a time: its hash keeps how far that is (`cancel`,
-- the number of a member), and as it is due meanwhile, `tend_batches` goes on with it should the caller die.
-- INCLUDE: keys time batch withdraw

-- What was to follow from its success does not any more.
local function call_back_no_more(batch)
  local id, told = unpack(redis.call('HMGET', batch_key(batch), 'on_success', 'success_at'))
  if id and not told then pcall(withdraw, id, job_key(id), 'canceled', 1) end
end

-- From now on nothing joins it. One that was canceled before has members again if some were put back.
local function begin_cancel(batch)
  local key = batch_key(batch)
  if redis.call('HSETNX', key, 'canceled_at', now_iso) == 0
      and (redis.call('HEXISTS', key, 'cancel') == 1 or redis.call('EXISTS', batch_open_key(batch)) == 0) then
    return
  end
  redis.call('HSETNX', key, 'closed_at', now_iso)
  redis.call('HSET', key, 'cancel', 0)
  set_due(batch)
  call_back_no_more(batch)
end

-- Some more members. Returns how many were canceled, how many run, whether there are more, and the batches in it.
local function cancel_members(batch, limit)
  local key, canceled, running, nested = batch_key(batch), 0, 0, {}
  local from = redis.call('HGET', key, 'cancel')
  if not from then return 0, 0, false, nested end
  local found = redis.call('ZRANGEBYSCORE', batch_members_key(batch), '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0,
    limit)
  for i = 1, #found, 2 do
    local member = found[i]
    if redis.call('SISMEMBER', batch_open_key(batch), member) == 0 then -- it has ended
    elseif string.sub(member, 1, 1) == '#' then
      nested[#nested + 1] = string.sub(member, 2)
      begin_cancel(string.sub(member, 2))
    else
      local _, answer = pcall(withdraw, member, job_key(member), 'canceled', 1) -- a broken one keeps none of the others
      if answer == 'canceled' then canceled = canceled + 1 end
      if answer == 'pending' then running = running + 1 end
    end
  end
  local more = #found == 2 * limit
  if more then redis.call('HSET', key, 'cancel', found[#found]) else redis.call('HDEL', key, 'cancel') end
  set_due(batch)
  settle_around(batch)
  return canceled, running, more, nested
end
