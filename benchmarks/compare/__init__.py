"""One small service on seven libraries, and what happens to its jobs when something goes wrong: see docs/compare.md."""
