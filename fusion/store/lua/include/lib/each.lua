-- The answers of `call` for the ids in ARGV from `first` on. A broken key is the answer of its job and stops no other;
-- any other error (no memory, a replica) is the whole call's.
-- INCLUDE: keys
local function each(call, first, count)
  local answers = {}
  for i = 1, count do
    local ok, answer = pcall(call, ARGV[first + i - 1])
    if not ok then
      local reply = error_reply(answer)
      if not string.find(reply.err, '^-?WRONGTYPE') then return reply end
      answer = 'error: ' .. string.gsub(reply.err, '^-', '')
    end
    answers[i] = answer
  end
  return answers
end
