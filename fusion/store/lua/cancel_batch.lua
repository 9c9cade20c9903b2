-- cancel_batch: a batch takes no more jobs, and those in it that wait will not run; running ones will not run again. A
--   bounded number at a time: what is left is due at once, for `tend_batches`.
-- ARGV: batch limit
-- FLAGS: allow-oom
-- INCLUDE: writer keys count cancel_members
-- Returns: {ok | missing, canceled, running, again, batches in it...}
-- Events: canceled
if redis.call('EXISTS', batch_key(A_batch)) == 0 then return { 'missing', 0, 0, 0 } end
begin_cancel(A_batch)
local canceled, running, more, nested = cancel_members(A_batch, tonumber(A_limit))
write_tallies()
return { 'ok', canceled, running, more and 1 or 0, unpack(nested) }
