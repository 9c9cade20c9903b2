"""The bundled campaign: 2,000 messages over all five channels."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CAMPAIGN = Path(__file__).with_name("campaign.csv")


def campaign(path: Path = CAMPAIGN) -> Iterator[tuple[str, dict[str, Any]]]:
    """(channel, payload) of every row of a CSV file with the columns channel, to, name, text, in the file's order.

    Rows are not checked: what is wrong with one is its task's to say. ValueError for an unknown channel.
    """
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row["channel"], _payload(row)


def _payload(row: dict[str, str]) -> dict[str, Any]:
    to, name, text = row["to"], row["name"], row["text"]
    match row["channel"]:
        case "sms" | "whatsapp":
            return {"to": to, "text": text}
        case "email":
            return {"to": to, "subject": f"A message for {name}", "text": text}
        case "pn":
            return {"to": to, "title": f"Hello {name}", "text": text}
        case "webhook":
            return {"url": to, "json": {"name": name, "text": text}}
        case channel:
            raise ValueError(f"unknown channel {channel!r}; use sms, email, pn, webhook or whatsapp")
