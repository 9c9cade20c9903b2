"""One small service on seven libraries, and what becomes of its jobs when something goes wrong: see docs/compare.md."""
