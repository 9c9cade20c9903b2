-- Names of keys of operations; fusion/store/layout/operation_keys.py is the other half of this table.
local OPERATIONS = P .. 'operations'
local function operation_key(id) return P .. 'operation:' .. id end
local function operation_seen_key(id) return P .. 'operation:' .. id .. ':seen' end
