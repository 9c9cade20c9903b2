-- What outboxes of databases had accepted: by queue the number of the last batch, and the stamp of what was accepted
-- under it. A batch is named `<number>:<number before>:<outbox>:<stamp>`, in hexadecimal digits but for the numbers.
--
-- The answer of a batch that nothing is to be accepted of: it was accepted before, or what was accepted last is not the
-- batch before it. Written all the same, see `enqueue`. Once its jobs are `accepted`, so is its number.
local function of_outbox(batch, queue, accepted)
  local number, before, outbox, stamp = string.match(batch, '^(%d+):(%d+):(%x+):(.*)$')
  local key = P .. 'outbox:' .. outbox
  if accepted then
    redis.call('HSET', key, queue, number .. ' ' .. stamp)
    return nil
  end
  local noted = redis.call('HGET', key, queue) or ''
  local last = tonumber(string.match(noted, '^%d+')) or 0
  if last == tonumber(before) and last < tonumber(number) then return nil end
  if noted ~= '' then redis.call('HSET', key, queue, noted) end
  return { last >= tonumber(number) and 'done' or 'gap', noted }
end
