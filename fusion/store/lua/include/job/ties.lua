-- Jobs that are bound to others: their hash has that in `ties` (k: a concurrency key). A script that reads
-- it notes that here. No other job pays for what hooks do.
-- OFTEN: note_key_alone
-- Exports: key_alone tied
local tied -- by the job's key
tied = {}
-- By the job's key, too: the name of the concurrency key, of jobs of which this call knows that they have no other
-- option.
local key_alone = {}
local function note_key_alone(key, name) tied[key], key_alone[key] = 'k', name end

-- A call does only so much, or the server is held up. A job that is bound to something (a concurrency key, a batch,
-- other jobs) costs some times as much as a plain one, which counts as one.
local function weight_of(key) return tied[key] and 4 or 1 end
