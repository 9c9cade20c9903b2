-- Data without the key are of the first layout, whoever comes first: a newer process must not lock out older ones
-- beside it.
-- Acts: writes the schema down where there is none
-- INCLUDE: time member
if not (schema[1] and schema[2] and schema[3]) then
  for _, field in ipairs({ 'version', 'min_reader', 'min_writer' }) do
    redis.call('HSETNX', P .. 'schema', field, FIRST_SCHEMA)
  end
  redis.call('HSETNX', P .. 'schema', 'fusion', FUSION)
  redis.call('HSETNX', P .. 'schema', 'by', A_name)
  redis.call('HSETNX', P .. 'schema', 'at', now_iso)
end
