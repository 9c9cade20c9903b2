-- The answers of `call` for the ids in ARGV from `first` on. A broken key is the answer of its job and stops no other;
-- any other error (no memory, a replica) is the whole call's.
-- INCLUDE: keys
local function each(call, first, count)
  local answers = {}
  for i = 1, count do
    local ok, answer = pcall(call, ARGV[first + i - 1])
    if not ok then
      local text = error_text(answer)
      text = string.match(text, '[A-Z]+ .+') or text -- Redis 6 says where in the script, too
      if not string.find(text, '^WRONGTYPE') then return redis.error_reply(text) end
      answer = 'error: ' .. text
    end
    answers[i] = answer
  end
  return answers
end
