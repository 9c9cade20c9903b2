-- Jobs that are bound to others: their hash says so in `ties` (k: a concurrency key), and whoever reads the hash of one
-- notes it here. No other job pays for what hooks do.
-- Exports: tied
local tied -- by the job's key
tied = {}
