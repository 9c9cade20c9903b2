-- Names of keys of unique keys; fusion/store/layout/keys.py is the other half of this table.
-- RARER: unique_key
local UNIQUES, UNIQUES_AUDIT = P .. 'uniques', P .. 'uniques:audit'
local function unique_key(name) return P .. 'unique:' .. name end
