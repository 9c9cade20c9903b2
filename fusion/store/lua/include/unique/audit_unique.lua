-- Looks whether the unique keys that are held are held by right, some at a time. What is found is mended and counted:
-- somebody wrote there, or deleted a job by hand.
-- INCLUDE: keys unique
-- RARER: audit_unique audit_uniques
local UNIQUES_LOOKED_AT = 100 -- a call

local function audit_unique(name)
  local owner, _, passed = owner_of(name)
  if owner and not passed then return end
  if not owner then redis.call('DEL', unique_key(name)) end
  redis.call('ZREM', UNIQUES, name)
  redis.call('INCR', UNIQUES_AUDIT)
end

-- From a cursor on; returns the next.
local function audit_uniques(cursor)
  local following, found = unpack(redis.call('ZSCAN', UNIQUES, cursor, 'COUNT', UNIQUES_LOOKED_AT))
  for i = 1, #found, 2 do pcall(audit_unique, found[i]) end
  return following
end
