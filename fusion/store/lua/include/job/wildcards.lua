-- The queues of a turn: those its worker names, and of each wildcard those in its index, the best classes first.
-- INCLUDE: keys
-- Exports: bound count crowded listed names origin tail
local WINDOW, names, count = 16, { [0] = nil }, 0 -- queues looked at of one wildcard; from 0 on
-- of a queue by its wildcard: best class that may wait there; wildcard
local bound, origin, tail, listed, crowded = {}, {}, {}, {}, false

local function expand(wildcard, last)
  local key, lists = work_key(wildcard), {}
  lists[1] = redis.pcall('ZREVRANGE', key, '0', WINDOW - 1, 'WITHSCORES')
  if #lists[1] == 2 * WINDOW then
    crowded = true
    local class = lists[1][2]
    -- more of one class than are looked at: on from the one served last, or from its place
    if last ~= '' and class == lists[1][2 * WINDOW] then
      local rank = redis.call('ZREVRANK', key, last)
      local missing = not rank
      if missing then
        redis.call('ZADD', key, class, last)
        rank = redis.call('ZREVRANK', key, last)
      end
      local found = redis.call('ZREVRANGE', key, rank, rank + WINDOW, 'WITHSCORES') -- it is the first of them
      if missing then redis.call('ZREM', key, last) end
      if found[2] == class then lists[2] = found end
    end
  end
  for nth = #lists, 1, -1 do
    local found = lists[nth]
    for i = nth == 2 and 3 or 1, #found, 2 do
      local queue, class = found[i], found[i + 1]
      if not listed[queue] and (nth == 1 or class == lists[1][2]) then
        listed[queue] = true
        local entry = { queue, tonumber(class), wildcard }
        if nth == 2 or last == '' or queue < last then -- equal scores stand in reverse order of their names
          names[count], bound[count], origin[count] = unpack(entry)
          count = count + 1
        else
          tail[#tail + 1] = entry
        end
      end
    end
  end
end
