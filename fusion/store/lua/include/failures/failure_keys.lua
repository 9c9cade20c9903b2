-- Names of keys of failure groups; fusion/store/layout/keys.py is the other half of this table.
local FAILURES, FAILURES_EMPTY = P .. 'failures', P .. 'failures:empty'
local function failure_key(group) return P .. 'failure:' .. group end
local function failure_jobs_key(group) return P .. 'failure:' .. group .. ':jobs' end
local function failure_queues_key(group) return P .. 'failure:' .. group .. ':queues' end
