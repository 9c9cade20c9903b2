-- Names of keys of cron and the schedulers, apart from the others: no worker's script pays for them.
local SCHEDULERS, CRON_DUE, CRON_MARKS = P .. 'schedulers', P .. 'cron:due', P .. 'cron:marks'
local function cron_entry_key(entry) return P .. 'cron:entry:' .. entry end
local function cron_history_key(entry) return P .. 'cron:history:' .. entry end
local function scheduler_key(name) return P .. 'scheduler:process:' .. name end
