-- schema_raise: the data are of a newer layout from now on.
-- KEYS: schema workers schedulers relays
-- ARGV: version min_reader min_writer by
-- INCLUDE: keys time count member states
-- FLAGS: allow-oom
-- Returns: {ok (also if they are of that layout already, or of a newer one) | older (then: kind, name, the layout it
--   knows, ...)}
-- Lifetime counters begin here: older processes did not count. What is there of jobs is their `base`; this looks at all
-- that wait for a time, once for ever.
-- Only once no process in the lists would become too old by it: what is in a list works on without asking again. One
-- that is dead counts until others have removed it, as it may come back.
if tonumber(A_version) <= (tonumber(schema[3]) or FIRST_SCHEMA) then return { 'ok' } end
local required, older = math.max(tonumber(A_min_reader), tonumber(A_min_writer)), { 'older' }

local function ask(kind, name, key)
  local known = redis.pcall('HMGET', key, 'schema', 'incarnation')
  if known.err or not known[2] then return end -- gone: it has to enter again
  local knows = tonumber(known[1]) or FIRST_SCHEMA
  if knows >= required then return end
  older[#older + 1] = kind
  older[#older + 1] = name
  older[#older + 1] = knows
end

for _, key in ipairs(redis.call('SMEMBERS', K_workers)) do ask('worker', worker_of(key), key) end
for _, name in ipairs(redis.call('ZRANGE', K_schedulers, 0, -1)) do ask('scheduler', name, scheduler_key(name)) end
for _, name in ipairs(redis.call('ZRANGE', K_relays, 0, -1)) do ask('relay', name, relay_key(name)) end
if #older > 1 then return older end

local there, seen = {}, {}
local function add(queue, n) there[queue] = (there[queue] or 0) + n end

local function add_marked(ids)
  for _, id in ipairs(ids) do
    local job = not seen[id] and redis.pcall('HMGET', job_key(id), 'status', 'seq', 'origin') or {}
    seen[id] = true
    if job[2] and job[3] and not is_terminal(job[1]) then add(job[3], 1) end
  end
end

for _, key in ipairs(redis.call('SMEMBERS', QUEUES)) do
  local queue = queue_name(key)
  local ready = redis.pcall('ZCARD', ready_key(queue))
  add(queue, tonumber(ready) or 0)
  for class = 0, tonumber(ready) and 255 or -1 do add(queue, -redis.call('ZCOUNT', ready_key(queue), class, class)) end
  for _, n in ipairs({ redis.pcall('ZCOUNT', wip_key(queue), LEAST_LEASE, '(+inf'), redis.pcall('ZCARD', P .. 'blocked:'
      .. queue) }) do
    add(queue, tonumber(n) or 0)
  end
  if is_list(queue) then add_marked(redis.pcall('LRANGE', key, 0, -1)) end
end
add_marked(redis.pcall('ZRANGE', SCHEDULED, 0, -1))
for _, queue in ipairs(redis.pcall('ZRANGE', TOTALS, 0, -1)) do there[queue] = there[queue] or 0 end
for queue, count in pairs(there) do
  redis.call('DEL', TOTALS .. ':' .. queue)
  redis.call('HSET', TOTALS .. ':' .. queue, 'base', count)
end
redis.call('HSET', K_schema, 'version', A_version, 'min_reader', A_min_reader, 'min_writer', A_min_writer, 'fusion',
  FUSION, 'by', A_by, 'at', now_iso)
return { 'ok' }
