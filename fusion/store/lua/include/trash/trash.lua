-- The trash: records of jobs that a person deleted, for an hour. They are no jobs any more: in no set of a state, with
-- no slot, key or id of their own. `rq:trash` has their ids by the ms at which they went there, `rq:trash:sizes` their
-- bytes, and all bytes under `*`, which is no id.
-- INCLUDE: time ties
-- RARER: trash_key is_in_trash drop_from_trash drop_expired_trash put_into_trash
-- Uses: tied
local TRASH, TRASH_SIZES = P .. 'trash', P .. 'trash:sizes'
local TRASH_MS, MOST_TRASH, MOST_TRASH_BYTES = 3600000, 10000, 67108864
-- in this call
local trash_bytes
local trash_count
local trash_lasts

local function trash_key(id) return P .. 'trash:job:' .. id end

local function is_in_trash(id)
  local since = tonumber(redis.call('ZSCORE', TRASH, id))
  return since ~= nil and since > now_ms - TRASH_MS
end

-- What the index has of it; the record too, unless `moved`.
local function drop_from_trash(id, moved)
  local size = redis.call('HGET', TRASH_SIZES, id)
  if not moved then redis.call('UNLINK', trash_key(id)) end
  redis.call('ZREM', TRASH, id)
  if not size then return end
  redis.call('HDEL', TRASH_SIZES, id)
  if redis.call('HINCRBY', TRASH_SIZES, '*', -size) <= 0 and redis.call('EXISTS', TRASH) == 0 then
    redis.call('DEL', TRASH_SIZES)
  end
end

-- Those whose hour is over, this many at most; returns how many.
local function drop_expired_trash(limit)
  local ids = redis.call('ZRANGEBYSCORE', TRASH, '-inf', now_ms - TRASH_MS, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do drop_from_trash(id) end
  return #ids
end

-- A record that nothing leads to any more is moved, whatever its size. False if there is no room, or it could not be
-- brought back: parents that its record does not name, a call of several that is not complete. `deferred`: so was it;
-- `score`: what it had in its set, if that tells anything; `failed_ms`: of a failed one, when it failed.
local function put_into_trash(id, key, queue, deferred, score, failed_ms)
  if string.sub(queue, 1, 1) == '_' or deferred and redis.call('HEXISTS', key, 'graph') == 1 then return false end
  if tied[key] and redis.call('EXISTS', key .. ':parents') == 1 then return false end
  if not trash_bytes then
    drop_expired_trash(100)
    trash_bytes, trash_count = tonumber(redis.call('HGET', TRASH_SIZES, '*')) or 0, redis.call('ZCARD', TRASH)
  end
  local size, moved = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', 0), trash_key(id)
  if not size then return false end
  size = tonumber(size) or 4096
  if trash_bytes + size > MOST_TRASH_BYTES or trash_count >= MOST_TRASH then return false end
  if redis.call('ZADD', TRASH, now_ms, id) == 0 then -- of a former life
    trash_bytes = trash_bytes - (tonumber(redis.call('HGET', TRASH_SIZES, id)) or 0)
  else
    trash_count = trash_count + 1
  end
  trash_bytes = trash_bytes + size
  redis.call('HSET', TRASH_SIZES, id, size, '*', string.format('%d', trash_bytes))
  redis.call('RENAME', key, moved)
  if score then redis.call('HSET', moved, 'trash_score', score) end
  if failed_ms then redis.call('HSET', moved, 'trash_failed', failed_ms) end
  redis.call('PEXPIRE', moved, TRASH_MS + 600000)
  if not trash_lasts then
    trash_lasts = true
    for _, name in ipairs({ TRASH, TRASH_SIZES }) do redis.call('PEXPIRE', name, TRASH_MS + 600000) end
  end
  return true
end
