-- A job that has ended, or was deleted, is to run again: what is asked of it anew, before it takes a place.
-- INCLUDE: keys score unique sound attach releasing cycle

-- `record`: the key of its hash. A broken concurrency key is an error. Else `duplicate` and the id of the job that has
-- its unique key by now, or `cycle` and how it would wait for itself; nil if nobody has: it is its own again.
local function refuses_again(id, record, queue, ties)
  local broken = ties and broken_limit(redis.call('HGET', record, 'concurrency_key') or '', queue)
  if broken then error(broken, 0) end
  if ties and string.find(ties, 'p', 1, true) then
    local parents, batch, as = unpack(redis.call('HMGET', record, 'parents', 'batch', 'batch_as'))
    local around = batch and not as and batches_around(batch)
    if around or redis.call('EXISTS', children_key(id)) == 1 then
      local path = cycle_of(id, parents_of(parents or '[]'), nil, nil, around)
      if path then return 'cycle ' .. cycle_text(path) end
    end
  end
  if ties and string.find(ties, 'u', 1, true) then
    local name, upto = unpack(redis.call('HMGET', record, 'unique_key', 'unique_until'))
    local other = name and owner_of(name)
    if other and other ~= id then return 'duplicate ' .. other end
    if name then take_key(name, id, upto) end
  end
end

-- Whether it waits for a parent. `asked`: somebody wants it to run, and it waits only for those that have not ended.
local function waits_again(id, record, ties, asked)
  local parents = ties and string.find(ties, 'p', 1, true) and redis.call('HGET', record, 'parents')
  local waits = parents and attach(id, parents_of(parents), next_seq(), asked, true)
  if parents and redis.call('EXISTS', parents_key(id)) == 1 then
    waits = redis.call('SADD', unmet_key(id), '*again')
    redis.call('HDEL', parents_key(id), 'left', 'again')
    do_later('a ' .. id)
  end
  return waits
end
