-- hold_probation: take, keep or give up the right to run a host's jobs on probation. One worker of a host has it at a
--   time: what takes down the
-- whole host's workers must not meet others whose next loss is held to be their own.
-- KEYS: probation
-- ARGV: incarnation ttl_ms keep n_sets
-- FLAGS: allow-oom
-- INCLUDE: member keys
-- Rest: the sets of blocked jobs that it could serve
-- Returns: 1 if it has the right: `keep` is 1 and it had it, or there is such a job, in a queue that is not paused,
--   and nobody else has it
local holder = redis.call('GET', K_probation)
if holder and holder ~= A_incarnation then return 0 end
local wanted = holder and A_keep == '1'
if not wanted and redis.call('EXISTS', SUSPENDED) == 0 then
  for i = REST, REST + A_n_sets - 1 do
    local queue = string.match(ARGV[i], '^%a+:([^:]+)')
    local open = queue and redis.call('EXISTS', paused_key(queue)) == 0
    if open and redis.call('EXISTS', P .. 'waits:' .. ARGV[i]) == 1 then wanted = true end
  end
end
if wanted then
  redis.call('SET', K_probation, A_incarnation, 'PX', A_ttl_ms)
  return 1
end
redis.call('DEL', K_probation)
return 0
