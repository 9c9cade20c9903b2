-- walk_graph: some jobs of a graph, each with its parents and children, from those named on. Changes nothing.
-- ARGV: most most_children work named n_fields
-- INCLUDE: keys
-- Rest: the fields to read, after `status` and `parents`; then the jobs, each id behind the way to go on from it: `u`
--   to its parents, `d` to its children, `b` both
-- `most`: jobs at most. `most_children`: of one job. `work`: ids of parents and children at most, but for those of the
--   last job; a job counts as 13 ids, and 5 more if its children are read. `named`: a record that names this number of
--   parents may have further ones
-- Returns: {{way and id, values or nil, {lists of further parents}, {open children}, {children}}...}, {{key, what it
--   should be}...}; an open child has not ended. The second are keys of a wrong type, which read as empty
-- What a call did not reach is for the next one to name.
local ONE_JOB, ITS_CHILDREN = 13, 5 -- ids that take as long
local most, most_children, left = tonumber(A_most), tonumber(A_most_children), tonumber(A_work)
local first, wrong, met, line, found, at = REST + A_n_fields, {}, {}, {}, {}, 1
local failed

local function ask(kind, command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then
    wrong[#wrong + 1] = { key, kind }
  else
    failed = failed or reply
  end
end

local function add(way, id)
  if #line < most and not met[way .. id] then
    met[way .. id] = true
    line[#line + 1] = way .. id
  end
end

-- The parents in a list of a record; a list that is none has none.
local function listed(text)
  local ok, members = pcall(cjson.decode, text)
  return ok and type(members) == 'table' and members or {}
end

local function add_parents(members)
  left = left - #members
  for _, member in ipairs(members) do
    if type(member) == 'string' then add('u', string.match(member, '^[?~]?(.*)$')) end
  end
end

-- All of a set, or some if stock RQ's has more.
local function some_of(key)
  local count = ask('a set', 'SCARD', key) or 0
  if count == 0 then return {} end
  if count <= most_children then return ask('a set', 'SMEMBERS', key) or {} end
  return (ask('a set', 'SSCAN', key, 0, 'COUNT', most_children) or {})[2] or {}
end

for nth = first, #ARGV do
  line[#line + 1] = ARGV[nth]
  local way, id = string.sub(ARGV[nth], 1, 1), string.sub(ARGV[nth], 2)
  met['u' .. id], met['d' .. id] = met['u' .. id] or way ~= 'd', met['d' .. id] or way ~= 'u'
end
while line[at] and at <= most and left > 0 and not failed do
  local way, id = string.sub(line[at], 1, 1), string.sub(line[at], 2)
  local row = ask('a hash', 'HMGET', job_key(id), 'status', 'parents', unpack(ARGV, REST, first - 1)) or false
  left = left - ONE_JOB
  local further, open, ever, text = {}, {}, {}, row and row[1] and row[2]
  if text and (way ~= 'd' or #text > 4 * A_named) then
    local parents = listed(text)
    if way ~= 'd' then add_parents(parents) end
    if #parents >= tonumber(A_named) then
      for _, part in ipairs(ask('a hash', 'HMGET', parents_key(id), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) or {}) do
        if part then
          further[#further + 1] = part
          if way ~= 'd' then add_parents(listed(part)) end
        end
      end
    end
  end
  if way ~= 'u' then
    open = ask('a sorted set', 'ZRANGE', children_key(id), 0, most_children - 1) or {}
    ever = some_of(dependents_key(id))
    left = left - ITS_CHILDREN - #open - #ever
    for _, child in ipairs(open) do add('d', child) end
    for _, child in ipairs(ever) do add('d', child) end
  end
  found[at], at = { line[at], row, further, open, ever }, at + 1
end
if failed then return error_reply(failed) end
return { found, wrong }
