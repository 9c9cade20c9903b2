"""Outboxes: jobs are written as rows in the user's own transaction, and enqueued once it is committed. Guide: docs/outbox.md."""
