-- log_event: lines of tasks and of other programs, into the stream of events.
-- KEYS: said
-- ARGV: n_lines
-- INCLUDE: time emit
-- Rest: lines (event id queue log_tag worker age_ms dropped message)
-- Returns: how many lines; the same for a resend, which K_said tells for a minute and which writes nothing
-- A line's event is `log`, or one of the statuses that transitions report; `source` tells its writer from them.
if not redis.call('SET', K_said, 1, 'PX', 60000, 'NX') then return tonumber(A_n_lines) end
reserve(tonumber(A_n_lines))
for i = 0, A_n_lines - 1 do
  local event, id, queue, log_tag, worker, age, dropped, message = unpack(ARGV, REST + 8 * i, REST + 8 * i + 7)
  if dropped == '0' then
    emit(event, id, queue, log_tag, 'source', 'log', 'worker', worker, 'at_ms', now_ms - age, 'message', message)
  else
    emit(event, id, queue, log_tag, 'source', 'log', 'worker', worker, 'at_ms', now_ms - age, 'dropped', dropped,
        'message', message)
  end
end
return tonumber(A_n_lines)
