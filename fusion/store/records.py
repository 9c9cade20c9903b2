"""The place where pickles of 0.1 look for what a prepared job holds: outboxes may have some."""

from __future__ import annotations

from fusion.store.layout.records import NewJob as NewJob
