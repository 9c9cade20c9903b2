-- expire: waiting jobs whose ttl is over end, a bounded number at a time, whether or not anybody serves their queues.
-- KEYS: expiring
-- ARGV: limit duties
-- FLAGS: allow-oom
-- INCLUDE: keys time score count emit ring park callbacks end_job inbox ties states tell
-- Uses: expected hooked tied
-- Returns: {ended, ms to the next or -1}
-- Events: expired
-- The index only says where to look; the job says whether.
local ended, PUT_OFF = 0, 30000 -- ms until one that can't be ended (a broken key) is tried again

local function expire(id)
  local key = job_key(id)
  local status, queue, expires, log_tag, hooks, priority, seq, waits_in, ties = unpack(redis.call('HMGET', key,
    'status', 'origin', 'expires_at', 'log_tag', 'hooks', 'priority', 'seq', 'waits_in', 'ties'))
  expires = tonumber(expires)
  -- it was given more time by hand
  if expires and expires > now_ms and status ~= 'started' and not is_terminal(status) then
    if status == 'queued' and (tonumber(redis.call('ZSCORE', ready_key(queue), id)) or 0) < 0 then
      line_up_again(queue, id, key, priority, seq) -- set aside by mistake
      ring(queue)
    end
    redis.call('ZADD', K_expiring, expires, id)
    return
  end
  if expires and status and status ~= 'started' and not is_terminal(status) then
    if is_foreign(status) and not waits_in then error('left to a newer version') end -- put off
    local set = set_of(status, queue or '')
    redis.call('ZSCORE', set, id) -- of a wrong type: that shows here, before anything changes
    if is_list(queue or '') and not is_elsewhere(status) and not redis.call('ZSCORE', set, id) then
      strike(queue, id)
    end
    if hooks then hooked[key] = true end
    if ties then tied[key] = ties end
    end_job(id, key, queue or '', priority, 'expired', CANCELED_TTL, set, 'ended_at', now_iso, 'reason', 'expired')
    meet(seq, nil, nil, queue or '', priority)
    if waits_in then unpark(id, key, queue) end
    emit('expired', id, queue or '', log_tag, 'reason', 'waited longer than its ttl')
    ended = ended + 1
  end
  redis.call('ZREM', K_expiring, id)
end

local ids = redis.call('ZRANGEBYSCORE', K_expiring, '-inf', now_ms, 'LIMIT', 0, A_limit)
expected = math.max(1, #ids)
local left = tonumber(A_limit) -- by weight
for _, id in ipairs(ids) do
  if left <= 0 then break end
  if not pcall(expire, id) then redis.call('ZADD', K_expiring, now_ms + PUT_OFF, id) end
  left = left - weight_of(job_key(id))
end
give_back_numbers()
write_tallies()
local first = redis.call('ZRANGE', K_expiring, 0, 0, 'WITHSCORES')
local next_in = first[1] and math.max(0, math.ceil(tonumber(first[2]) - now_ms)) or -1
if next_in ~= 0 then tell(A_duties, 'expire', next_in) end
return { ended, next_in }
