"""RQ's own tests, run against `fusion.rq`: `make test-rq`. No text of RQ is in this repository: its sources come from the package index."""
