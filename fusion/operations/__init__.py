"""Bulk operations on all jobs that a query matches: their actions, the order of the walk, the runner. See docs/bulk.md."""
