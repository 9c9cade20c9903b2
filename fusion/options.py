"""The place where pickles of 0.1 look for a prepared job: outboxes may hold some."""

from __future__ import annotations

from fusion.enqueue.build import JobData as JobData
