-- Jobs that would wait for each other for ever. A job can close such a circle only if others wait for it already: it
-- has had a life before, or it is put back.
-- INCLUDE: keys kin
-- RARER: cycle_of cycle_text batches_around

-- The batches that a member is in, by id; nil if none of the jobs that these call back has a child, in Redis or in
-- `awaited`: then the member waits for none of these.
local function batches_around(batch, awaited)
  local found, matters = {}, false
  for _ = 1, 5 do -- no batch is deeper
    if not batch or found[batch] then break end
    found[batch] = true
    local parent, complete, success = unpack(redis.call('HMGET', batch_key(batch), 'parent', 'on_complete',
        'on_success'))
    for _, id in ipairs({ complete or '', success or '' }) do
      if id ~= '' and (awaited and awaited[id] or redis.call('EXISTS', children_key(id)) == 1) then matters = true end
    end
    batch = parent
  end
  return matters and found or nil
end

-- The circle that a job closes by waiting for these parents: its id, those between, each of which waits for the next,
-- and its id again; nil if it closes none among the nearest `most` ancestors. Second: how many were looked at. `sent`:
-- by id the parents of jobs that the same call is about to write down. `around`: the batches that it is a member of.
-- What a batch calls back waits for all its members.
local function cycle_of(id, parents, sent, most, around)
  local line, via, at = {}, {}, 1
  most = most or 200

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
      if via[one] == nil and #line < most and not string.find(member, '^[*#]') then
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
    local status, batch, as = unpack(redis.call('HMGET', job_key(one), 'status', 'batch', 'batch_as'))
    if sent and sent[one] then
      found = add(sent[one], one)
    elseif status == 'deferred' then
      if as and around and around[batch] then
        found = add({ id }, one)
      elseif as and redis.call('SCARD', batch_open_key(batch)) <= most then
        found = add(redis.call('SMEMBERS', batch_open_key(batch)), one)
      end
      if found then -- it is no parent that closes the circle
      elseif redis.call('SCARD', unmet) <= most then
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
