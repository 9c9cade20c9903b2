-- cron_put: a cron entry comes into being, or changes.
-- KEYS: due marks
-- ARGV: entry plan spec rev app version error
-- INCLUDE: writer layout keys time schedule cron
-- Returns: new | changed | same | faulty (what is stored stays, with the error) | taken <whose it is> | outdated
-- app empty: made at run time. An app may declare its own entries only; a version of it that another one alive has
-- overtaken, none. Ticks count from now on, so what was planned before an entry (or its plan) was there is not made
-- up. A tick of the former plan that is due and undecided is looked at by the new one.
local key = cron_entry_key(A_entry)
local owner, plan, spec, rev, planned, paused = unpack(redis.call('HMGET', key, 'app', 'plan', 'spec', 'rev', 'next',
    'paused'))
if owner and owner ~= A_app then return 'taken ' .. owner end
if A_app ~= '' and is_outdated(A_app, A_version) then return 'outdated' end
if not schema[2] and is_new() then begin_layout('cron_put', true) end
redis.call('HSET', key, 'app', A_app, 'version', A_version, 'declared_at', now_iso)
redis.call('HSETNX', key, 'created_at', now_iso)
if A_error ~= '' then
  redis.call('HSET', key, 'declared_error', A_error)
  if not owner then redis.call('ZADD', K_due, '+inf', A_entry) end
  return 'faulty'
end
redis.call('HDEL', key, 'declared_error')
if rev == A_rev and plan == A_plan and spec == A_spec then -- all three: one that was damaged is mended
  redis.call('ZADD', K_due, 'NX', paused and '+inf' or now_s, A_entry) -- should it have fallen out of the index
  return 'same'
end

local mark = tonumber(redis.call('ZSCORE', K_marks, A_entry))
if plan ~= A_plan then
  planned = tonumber(planned)
  local undecided = plan and not paused and planned and planned <= now_s
  local from = undecided and planned - 1 or now_s
  -- a mark further on than now is of a clock that has since been set back: what it says was run is not run again
  if not mark or mark < from then redis.call('ZADD', K_marks, from, A_entry) end
  -- of a due tick it stays until a scheduler has looked: the plan may change once more before that
  if not undecided then redis.call('HDEL', key, 'next') end
end
redis.call('HSET', key, 'plan', A_plan, 'spec', A_spec, 'rev', A_rev)
redis.call('HDEL', key, 'error', 'error_at')
redis.call('ZADD', K_due, paused and '+inf' or now_s, A_entry)
ring_scheduler()
return plan and 'changed' or 'new'
