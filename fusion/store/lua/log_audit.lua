-- log_audit: what somebody changes is written down, before it is done and after.
-- ARGV: nonce
-- FLAGS: allow-oom
-- INCLUDE: writer note_audit
-- Rest: names and values of the entry's fields
-- Returns: 1
note_audit(A_nonce, unpack(ARGV, REST))
return 1
