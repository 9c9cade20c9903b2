-- Priority in the whole part, arrival in the fraction: exact in a double for priority <= 255 and |seq| < 2^43.
-- Scores stay numbers or strings read from Redis: tostring, `..` and cjson keep 14 digits only, which makes neighbours
-- equal.
-- INCLUDE: keys
-- Uses: fifos
local UNIT = 2 ^ -44

-- The whole priority of a number, of whatever a hash or an old producer's score holds.
local function class_of(priority) return math.max(0, math.min(255, math.floor(tonumber(priority) or 1))) end

local function score_of(q, class, n) return ((class == '1' or is_list(q)) and 1 or class_of(class)) + 0.5 - n * UNIT end

local function next_seq() return redis.call('INCR', P .. 'seq') end

-- Among the jobs that wait. Where a caller knows of no LIST of stock RQ's at all, this is who notices the first.
local function enter_line(queue, score, id)
  local added = redis.pcall('ZADD', ready_key(queue), score, id)
  if type(added) == 'number' then return end
  if fifos[queue] ~= false then error(added) end
  fifos[queue] = nil
  if not in_fifo(queue) then error(added) end
  redis.call('ZADD', ready_key(queue), score, id)
end

-- A new arrival's place. Behind a LIST queue's inbox, so that outsiders' ids that came before are served before.
local function line_up(queue, id, priority, seq)
  if is_list(queue) then
    redis.call('RPUSH', queue_key(queue), id)
  else
    enter_line(queue, score_of(queue, priority, seq), id)
  end
end

-- Back to the place a job had. One without a number (an old producer's, or Retry(place="back") took it) gets a new one.
local function line_up_again(queue, id, key, priority, seq)
  if not tonumber(seq) then
    seq = next_seq()
    redis.call('HSET', key, 'seq', seq)
  end
  enter_line(queue, score_of(queue, priority, seq), id)
end
