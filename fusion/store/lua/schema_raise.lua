-- schema_raise: the data are of a newer layout from now on.
-- KEYS: schema workers schedulers relays
-- ARGV: version min_reader min_writer by
-- INCLUDE: keys time member
-- FLAGS: allow-oom
-- Returns: {ok (also if they are of that layout already, or of a newer one) | older (then: kind, name, the layout it
--   knows, ...)}
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

redis.call('HSET', K_schema, 'version', A_version, 'min_reader', A_min_reader, 'min_writer', A_min_writer, 'fusion',
  FUSION, 'by', A_by, 'at', now_iso)
return { 'ok' }
