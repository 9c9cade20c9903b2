-- Tells each process of the fleet that listens what a duty has found: it does the same later, and at the instants that
-- the duty found. A process that does not learn of it does the duty itself: nothing depends on the one that did it.
-- The channel names the database, too: all databases of a server share their channels, and must not take the duties of
-- another fleet for their own.
local function tell(channel, ...)
  redis.pcall('PUBLISH', channel, table.concat({ ... }, ' '))
end
