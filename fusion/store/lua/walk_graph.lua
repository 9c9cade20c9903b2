-- walk_graph: some jobs of a graph, each with its parents and children, from those named on. Changes nothing.
-- ARGV: most most_children work named n_fields
-- INCLUDE: keys
-- Rest: the fields to read, after `status` and `parents`; then the jobs, each id behind the way to go on from it: `u`
--   to its parents, `d` to its children, `b` both
-- `most`: jobs at most. `most_children`: of one job. `work`: thousands of instructions at most, about; the first job is
--   read whatever it takes. `named`: a record that names this number of parents may have further ones
-- Returns: {{way and id, values, lists of further parents, nil, open children, nil, other children, nil, and so on, job
--   after job}, {{key, what it should be}...}; an open child has not ended. Jobs whose way is `u` have no children, and
--   none of those two nils. The second are keys of a wrong type, which read as empty
-- What a call did not reach is for the next one to name. The jobs stand in one list, as a list in a list takes as long
-- as four texts.
-- Thousands of instructions. `ITS_LISTS`: those of parents for which its record has no room.
local ONE_JOB, ONE_VALUE, ONE_PARENT, ITS_LISTS, ITS_CHILDREN, ONE_SET, ONE_CHILD = 27, 3, 3, 25, 15, 10, 4
local FEW, FEW_AS_TEXT = 50, '50' -- children that are read uncounted; a number takes long to become a text
local most, left, most_children, named = tonumber(A_most), tonumber(A_work), tonumber(A_most_children), A_named + 0
local first, n_values = REST + A_n_fields, A_n_fields + 2
local ids, ways, met_up, met_down, found, wrong = {}, {}, {}, {}, {}, {}
local at, size, none, fits, failed = 1, 0, {}, true, nil -- `#found` would look for the end each time

local function ask(kind, command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then
    wrong[#wrong + 1] = { key, kind }
  else
    failed = failed or reply
  end
end

local function is_affordable(work) return at == 1 or work <= left end

-- The parents in a list of a record; a list that is none has none.
local function listed(text)
  local ok, members = pcall(cjson.decode, text)
  return ok and type(members) == 'table' and members or {}
end

local function add_parents(members)
  left = left - ONE_PARENT * #members
  for _, member in ipairs(members) do
    if not met_up[member] and #ids < most and type(member) == 'string' then
      local id = string.match(member, '^[?~]?(.*)$')
      if not met_up[id] then ids[#ids + 1], ways[#ids + 1] = id, 'u' end
      met_up[member], met_up[id] = true, true
    end
  end
end

local function add_children(children)
  left = left - ONE_CHILD * #children
  for _, child in ipairs(children) do
    local met = met_down[child]
    if met ~= at then -- else this job has named it already
      size = size + 1
      found[size] = child
      if met then
        met_down[child] = at
      elseif #ids < most then
        met_down[child], ids[#ids + 1], ways[#ids + 1] = at, child, 'd'
      end
    end
  end
end

-- The lists of parents for which a record has no room; nil if that is too much work.
local function further_of(id)
  local parts, key = {}, parents_key(id)
  for _, part in ipairs(ask('a hash', 'HMGET', key, '1', '2', '3', '4', '5', '6', '7', '8', '9', '10') or {}) do
    if part then parts[#parts + 1] = part end
  end
  left = left - ITS_LISTS
  if is_affordable(ONE_PARENT * named * #parts) then return parts end
end

-- A job's children that are open, and those that it ever had if these are more; nil if that is too much work.
local function children_of(id)
  local children, dependents = children_key(id), dependents_key(id)
  local open = ask('a sorted set', 'ZRANGE', children, '0', FEW_AS_TEXT) or none
  if #open > FEW then
    left = left - ONE_CHILD * #open
    local count = math.min(redis.call('ZCARD', children), most_children)
    if not is_affordable(ONE_CHILD * count) then return end
    open = redis.call('ZRANGE', children, 0, count - 1)
  elseif not open[1] then
    local some = ask('a set', 'SSCAN', dependents, '0', 'COUNT', FEW_AS_TEXT)
    if not some or some[1] == '0' then return none, some and some[2] or none end
    left = left - ONE_CHILD * #some[2]
  end
  local count = ask('a set', 'SCARD', dependents) or 0
  if count <= #open then return open, none end
  if not is_affordable(ONE_CHILD * (#open + math.min(count, most_children))) then return end
  left = left - ONE_SET
  if count <= most_children then return open, redis.call('SMEMBERS', dependents) end
  return open, redis.call('SSCAN', dependents, 0, 'COUNT', most_children)[2]
end

for nth = first, #ARGV do
  local way, id = string.sub(ARGV[nth], 1, 1), string.sub(ARGV[nth], 2)
  ids[#ids + 1], ways[#ids + 1] = id, way
  met_up[id], met_down[id] = met_up[id] or way ~= 'd', met_down[id] or way ~= 'u'
end
while ids[at] and at <= most and left > 0 and fits and not failed do
  local way, id, before = ways[at], ids[at], size
  local row = ask('a hash', 'HMGET', job_key(id), 'status', 'parents', unpack(ARGV, REST, first - 1)) or none
  left = left - ONE_JOB - ONE_VALUE * n_values
  size = size + 1
  found[size] = way .. id
  for nth = 1, n_values do found[size + nth] = row[nth] or false end
  size = size + n_values
  local text, n_parents, further, open, ever = row[1] and row[2], 0, none, none, none
  if text and way ~= 'd' then
    local parents = listed(text)
    n_parents = #parents
    add_parents(parents)
  end
  if n_parents >= named or text and way == 'd' and #text > 4 * named and redis.call('EXISTS', parents_key(id)) == 1 then
    further = further_of(id)
  end
  if further and way ~= 'u' then
    left = left - ITS_CHILDREN
    open, ever = children_of(id)
  end
  fits = further and open
  if not fits then found[before + 1] = nil end -- the next call begins with it
  if further and further[1] then
    for _, part in ipairs(further) do
      size = size + 1
      found[size] = part
      if way ~= 'd' then add_parents(listed(part)) end
    end
  end
  size = size + 1
  found[size] = false
  if fits and way ~= 'u' then
    if open[1] then add_children(open) end
    size = size + 1
    found[size] = false
    if ever[1] then add_children(ever) end
    size = size + 1
    found[size] = false
  end
  at = at + 1
end
if failed then return error_reply(failed) end
return { found, wrong }
