"""Values and helpers that everything else stands on: no Redis, no sockets, no loop."""
