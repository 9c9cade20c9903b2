-- Who is too old for the data changes nothing. For what producers and people call; processes that live long ask when
-- they enter their list.
-- Acts: ends the call with FUSION_SCHEMA if this version must not write
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
  local by = redis.call('HGET', P .. 'schema', 'fusion') or ''
  return redis.error_reply('FUSION_SCHEMA ' .. (schema[2] or 0) .. ' ' .. schema[1] .. ' ' .. by)
end
