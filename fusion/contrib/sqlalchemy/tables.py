"""The tables of the outbox, for your own `MetaData`; `fusion.contrib.outbox.database` describes their contents."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

_BIG = BigInteger().with_variant(Integer(), "sqlite")


@dataclass(frozen=True, slots=True)
class OutboxTables:
    """The three tables."""

    rows: Table
    queues: Table
    forwarders: Table


def outbox_tables(metadata: MetaData | None = None, *, schema: str | None = None) -> OutboxTables:
    """Define the tables in that MetaData, so that `create_all` and Alembic know them. Existing ones are returned."""
    metadata = metadata if metadata is not None else MetaData()
    key = f"{schema}.fusion_outbox" if schema else "fusion_outbox"
    if key in metadata.tables:
        return OutboxTables(*(metadata.tables[f"{key}{end}"] for end in ("", "_queue", "_forwarder")))
    rows = Table(
        "fusion_outbox",
        metadata,
        Column("id", _BIG, primary_key=True, autoincrement=True),
        Column("queue", String(255), nullable=False),
        Column("job_id", String(128), nullable=False),
        Column("body", Text, nullable=False),
        Column("written_at", Double, nullable=False),
        Column("state", SmallInteger, nullable=False, default=0, server_default="0"),
        Column("batch", BigInteger),
        Column("edition", Integer, nullable=False, default=0, server_default="0"),
        Column("sent_at", Double),
        Column("reason", Text, nullable=False, default="", server_default=""),
        Column("again_at", Double),
        Index("fusion_outbox_state", "state", "queue", "id"),
        Index("fusion_outbox_sent", "sent_at"),
        schema=schema,
        sqlite_autoincrement=True,  # ids are never reused: a job's place in its batch is its id
    )
    queues = Table(
        "fusion_outbox_queue",
        metadata,
        Column("id", _BIG, primary_key=True, autoincrement=True),
        Column("queue", String(255), nullable=False, unique=True),
        Column("number", BigInteger, nullable=False),
        Column("token", String(32), nullable=False),
        Column("edition", Integer, nullable=False),
        Column("is_open", Boolean, nullable=False),
        schema=schema,
    )
    forwarders = Table(
        "fusion_outbox_forwarder",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("outbox", String(32), nullable=False),
        Column("holder", String(255), nullable=False),
        Column("held_until", Double, nullable=False),
        schema=schema,
    )
    return OutboxTables(rows, queues, forwarders)
