-- Index of the waiting jobs that have a ttl, by the time at which it is over, whatever set they wait in: `expire` ends
-- them, also where no worker claims. A job that begins to wait enters it, one that starts or ends leaves. An entry too
-- many is dropped by `expire`, and a claim looks at the job itself, so nothing here fails a transition.
-- INCLUDE: keys
-- RARE: expect_expiry forget_expiry
local function expect_expiry(id, expires_at)
  if tonumber(expires_at) then redis.pcall('ZADD', EXPIRING, expires_at, id) end
end

local function forget_expiry(id, expires_at)
  if expires_at then redis.pcall('ZREM', EXPIRING, id) end
end
