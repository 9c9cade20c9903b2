-- Unique keys. Who has one: `rq:unique:<key>` has its id. A job holds it until it starts or ends, and then stands in
-- `rq:uniques` as well; or it has passed that point (for `accept`: its enqueue), and the key goes by itself when its
-- window is over. Who holds a key is asked at each enqueue of it: one that has ended, or whose record is gone, has
-- lost it, whatever is written down.
-- INCLUDE: keys time states
-- RARER: owner_of take_key let_go

-- The job that has a key, its status, and whether it has passed the point from which its window counts. Nil: nobody.
local function owner_of(name)
  local id = redis.pcall('GET', unique_key(name))
  local broken = type(id) == 'table' and unique_key(name)
      or type(redis.pcall('ZCARD', UNIQUES)) == 'table' and UNIQUES
  if broken then error('WRONGTYPE the unique key ' .. name .. ' is broken at ' .. broken, 0) end
  if not id then return nil end
  local status, own = unpack(redis.pcall('HMGET', job_key(id), 'status', 'unique_key'))
  if redis.call('PTTL', unique_key(name)) >= 0 then return id, status or '', true end
  if status and own == name and not is_terminal(status) then return id, status, false end
end

-- The index first: a key that nobody finds would be held for ever.
local function take_key(name, id, upto, window)
  if upto == 'accept' then
    redis.call('SET', unique_key(name), id, 'PX', window)
    return redis.call('ZREM', UNIQUES, name) -- of one that held it, and is replaced
  end
  redis.call('ZADD', UNIQUES, now_ms, name)
  redis.call('SET', unique_key(name), id)
end

-- A job that may hold a key is `started`, or ends as its `status` says. The window counts for one that starts, and for
-- one that finishes: whatever ends otherwise has not done what others are not to do again.
local function let_go(id, key, status)
  local name, upto, window = unpack(redis.call('HMGET', key, 'unique_key', 'unique_until', 'unique_window'))
  local starts = status == 'started'
  if not name or starts and upto ~= 'start' then return end
  local own = unique_key(name)
  if redis.call('GET', own) ~= id or redis.call('PTTL', own) >= 0 then return end
  -- 0 deletes it, and is what those may do who only enqueue
  redis.call('PEXPIRE', own, (starts or status == 'finished') and tonumber(window) or 0)
  redis.call('ZREM', UNIQUES, name)
end
