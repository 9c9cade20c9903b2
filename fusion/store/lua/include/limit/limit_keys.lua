-- Names of keys of concurrency keys; fusion/store/layout/keys.py is the other half of this table.
local LIMITS, LIMITS_DUE, LIMITS_AUDIT = P .. 'limits', P .. 'limits:due', P .. 'limits:audit'
local function limit_key(name) return P .. 'limit:' .. name end
local function holders_key(name) return P .. 'limits:held:' .. name end
local function queue_up_key(name) return P .. 'limits:waiting:' .. name end
