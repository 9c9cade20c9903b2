-- Names of keys of jobs that wait for others; fusion/store/layout/keys.py is the other half of this table.
local GRAPHS = P .. 'graphs'
local function children_key(id) return P .. 'job:' .. id .. ':children' end
local function parents_key(id) return P .. 'job:' .. id .. ':parents' end
local function graph_key(token) return P .. 'graph:' .. token end
local function unmet_key(id) return P .. 'job:' .. id .. ':dependencies' end
