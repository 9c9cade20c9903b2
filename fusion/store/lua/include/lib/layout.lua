-- A prefix gets its layout when somebody first writes to it, and only a person moves it on: the newest where nothing is
-- yet. Data that are there have older processes beside them, and those must not be locked out.
-- INCLUDE: keys time
-- RARER: is_new begin_layout

-- Whether nothing was ever written under the prefix; no, too, if this user may not look.
local function is_new()
  return redis.pcall('EXISTS', P .. 'schema', P .. 'workers', QUEUES, P .. 'seq', P .. 'cron:due') == 0
end

-- Returns the layout. A user who may not write the key leaves it to others, and to them it is the first.
local function begin_layout(by, newest)
  local version, reader, writer = FIRST_SCHEMA, FIRST_SCHEMA, FIRST_SCHEMA
  if newest then version, reader, writer = SCHEMA, LEAST_READER, LEAST_WRITER end
  for field, value in pairs({ version = version, min_reader = reader, min_writer = writer, fusion = FUSION, by = by,
    at = now_iso }) do
    if type(redis.pcall('HSETNX', P .. 'schema', field, value)) ~= 'number' then return FIRST_SCHEMA end
  end
  return version
end
