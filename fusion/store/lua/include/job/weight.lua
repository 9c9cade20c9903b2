-- A call does only so much, or the server is held up. A job that is bound to something (a concurrency key, a batch,
-- other jobs) costs some times as much as a plain one, which counts as one.
-- INCLUDE: ties
-- Uses: tied
local function weight_of(key) return tied[key] and 4 or 1 end
