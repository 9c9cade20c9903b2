-- tell_verdict: the verdict on the fleet has turned bad, or well again: one callback tells it, however many watch.
-- KEYS: verdicts
-- ARGV: watch bad nonce url word body secret ttl
-- INCLUDE: writer time callbacks
-- Returns: the id of the callback; empty: it received that already; full: too many callbacks wait, nothing is noted
-- `watch`: the receiver, and from which level on a verdict is bad. What is not there is well. The callback is accepted
-- before the verdict is noted, both in this call. A resend with the same nonce answers as the first one did.
local bad, nonce, id = string.match(redis.call('HGET', K_verdicts, A_watch) or '0', '^(%d) ?(%S*) ?(%S*)$')
if bad == A_bad then return nonce == A_nonce and id or '' end
redis.call('SET', SEAL, A_secret, 'NX')
id = accept_delivery({ url = A_url, job_id = 'doctor', queue = '', status = A_word, ended_at = now_iso, body = A_body })
if not id then return 'full' end
redis.call('HSET', K_verdicts, A_watch, A_bad .. ' ' .. A_nonce .. ' ' .. id)
redis.call('EXPIRE', K_verdicts, A_ttl)
return id
