-- scheduler_beat: a scheduler enters the list of schedulers, or says that it lives.
-- KEYS: scheduler schedulers
-- ARGV: name incarnation lease_ms ttl n_pairs
-- INCLUDE: keys member enter
-- FLAGS: allow-oom
-- Rest: pairs (pid, hostname, app, version, ...)
-- Returns: ok | taken (a live other has the name)
if not enter_list(K_scheduler, K_schedulers, A_ttl) then return 'taken' end
drop_silent(K_schedulers, scheduler_key(''))
return 'ok'
