-- Jobs that would wait for each other for ever. A job can close such a circle only if others wait for it already: it
-- has had a life before, or it is put back.
-- INCLUDE: keys kin_keys kin
-- RARER: cycle_of cycle_text
local MOST_ANCESTORS = 200

-- The circle that a job closes by waiting for these parents: its id, those between, each of which waits for the next,
-- and its id again; nil if it closes none among the nearest `most` ancestors. Second: how many were looked at. `sent`:
-- by id the parents of jobs that the same call is about to write down.
local function cycle_of(id, parents, sent, most)
  local line, via, at = {}, {}, 1
  most = most or MOST_ANCESTORS

  local function add(members, child)
    for _, member in ipairs(members) do
      local _, one = parent_in(member)
      if one == id then
        local path = { id }
        while child do
          table.insert(path, 1, child)
          child = via[child]
        end
        table.insert(path, 1, id)
        return path
      end
      if via[one] == nil and #line < most and string.sub(member, 1, 1) ~= '*' then
        via[one] = child or false
        line[#line + 1] = one
      end
    end
  end

  local found = add(parents)
  while not found and line[at] do
    local one = line[at]
    local unmet = unmet_key(one)
    at = at + 1
    if sent and sent[one] then
      found = add(sent[one], one)
    elseif redis.call('HGET', job_key(one), 'status') == 'deferred' then
      if redis.call('SCARD', unmet) <= most then
        found = add(redis.call('SMEMBERS', unmet), one)
      elseif redis.call('SISMEMBER', unmet, id) == 1 or redis.call('SISMEMBER', unmet, '?' .. id) == 1
          or redis.call('SISMEMBER', unmet, '~' .. id) == 1 then
        found = add({ id }, one)
      end
    end
  end
  return found, at
end

-- As people read it: no more than five of them.
local function cycle_text(path)
  if #path <= 6 then return table.concat(path, ' -> ') end
  return table.concat(path, ' -> ', 1, 4) .. ' -> ... -> ' .. path[#path - 1] .. ' -> ' .. path[#path]
end
