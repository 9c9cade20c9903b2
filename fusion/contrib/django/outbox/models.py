"""The tables of the outbox; `fusion.contrib.outbox.database` describes their contents."""

from __future__ import annotations

from django.db import models


class OutboxRow(models.Model):
    """A job that is to be enqueued once the transaction that wrote it is committed."""

    id = models.BigAutoField(primary_key=True)
    queue = models.CharField(max_length=255)
    job_id = models.CharField(max_length=128)
    body = models.TextField()
    written_at = models.FloatField()
    state = models.SmallIntegerField(default=0)
    batch = models.BigIntegerField(null=True)
    edition = models.IntegerField(default=0)
    sent_at = models.FloatField(null=True)
    reason = models.TextField(default="")
    again_at = models.FloatField(null=True)

    class Meta:
        db_table = "fusion_outbox"
        indexes = (
            models.Index(fields=("state", "queue", "id"), name="fusion_outbox_state"),
            models.Index(fields=("sent_at",), name="fusion_outbox_sent"),
        )

    def __str__(self) -> str:
        return f"{self.job_id} for {self.queue}"


class OutboxQueue(models.Model):
    """The progress of the batches of a queue."""

    id = models.BigAutoField(primary_key=True)
    queue = models.CharField(max_length=255, unique=True)
    number = models.BigIntegerField(default=0)
    token = models.CharField(max_length=32, default="")
    edition = models.IntegerField(default=0)
    is_open = models.BooleanField(default=False)

    class Meta:
        db_table = "fusion_outbox_queue"

    def __str__(self) -> str:
        return f"{self.queue} at {self.number}"


class OutboxForwarder(models.Model):
    """The outbox's own name, and its present forwarder: one row."""

    id = models.BigIntegerField(primary_key=True)
    outbox = models.CharField(max_length=32)
    holder = models.CharField(max_length=255, default="")
    held_until = models.FloatField(default=0.0)

    class Meta:
        db_table = "fusion_outbox_forwarder"

    def __str__(self) -> str:
        return str(self.outbox)
