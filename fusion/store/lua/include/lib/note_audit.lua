-- What people change is written down. Appended only, and kept short: two entries for a change, one that it was asked
-- for and one with its result. Nobody has to be able to do more with the key than XADD.
local AUDIT, AUDIT_CAP = P .. 'audit', 20000

-- `nonce`: a resend of the same writes nothing. `...`: names and values.
local function note_audit(nonce, ...)
  if redis.call('SET', P .. 'events:said:' .. nonce, 1, 'PX', 60000, 'NX') then
    redis.call('XADD', AUDIT, 'MAXLEN', '~', AUDIT_CAP, '*', ...)
  end
end
