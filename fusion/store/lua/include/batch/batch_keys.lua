-- Names of keys of batches; fusion/store/layout/keys.py is the other half of this table.
local BATCHES, BATCHES_DUE, BATCHES_AUDIT = P .. 'batches', P .. 'batches:due', P .. 'batches:audit'
local function batch_key(batch) return P .. 'batch:' .. batch end
local function batch_open_key(batch) return P .. 'batch:' .. batch .. ':open' end
local function batch_members_key(batch) return P .. 'batch:' .. batch .. ':members' end
local function batch_ended_key(batch) return P .. 'batch:' .. batch .. ':ended' end
