-- cron_retire: what a higher version of an app no longer declares goes.
-- KEYS: due apps
-- ARGV: app version n_entries
-- INCLUDE: writer keys cron
-- FLAGS: allow-oom
-- Rest: all entries that this version declares
-- Returns: {ok | outdated, removed, left}; left: not declared, and kept, since this version is not higher
-- Entries of other apps, and those made at run time, are not touched. A lower version says from now on what is the
-- app's: it was rolled back.
if is_outdated(A_app, A_version) then return { 'outdated', {}, {} } end
local declared, removed, left = {}, {}, {}
for i = 1, tonumber(A_n_entries) do declared[ARGV[REST + i - 1]] = true end
local before = redis.call('HGET', K_apps, A_app)
local higher = before and is_higher(A_version, before)
for _, entry in ipairs(redis.call('ZRANGE', K_due, 0, -1)) do
  if not declared[entry] and redis.pcall('HGET', cron_entry_key(entry), 'app') == A_app then
    if higher then
      forget_entry(entry)
      removed[#removed + 1] = entry
    else
      left[#left + 1] = entry
    end
  end
end
redis.call('HSET', K_apps, A_app, A_version)
return { 'ok', removed, left }
