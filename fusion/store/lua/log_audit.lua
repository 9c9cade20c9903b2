-- log_audit: what somebody changes is written down, before it is done and after.
-- ARGV: nonce
-- FLAGS: allow-oom
-- INCLUDE: writer
-- Rest: names and values of the entry's fields
-- Returns: 1
-- Appended only, and kept short: two entries for a change, one that it was asked for and one with its result. Nobody
-- has to be able to do more with the key than XADD. A resend with the same nonce writes nothing.
local AUDIT, AUDIT_CAP = P .. 'audit', 20000
if redis.call('SET', P .. 'events:said:' .. A_nonce, 1, 'PX', 60000, 'NX') then
  redis.call('XADD', AUDIT, 'MAXLEN', '~', AUDIT_CAP, '*', unpack(ARGV, REST))
end
return 1
