-- Consumer groups of the event stream.

-- A reply of XINFO, a flat list of names and values, as a table.
local function named(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

-- The groups of the stream; none if there is no stream.
local function groups_of(stream)
  local found, groups = redis.pcall('XINFO', 'GROUPS', stream), {}
  if found.err then return groups end
  for i, flat in ipairs(found) do groups[i] = named(flat) end
  return groups
end
