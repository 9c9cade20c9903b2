"""The writers of what other programs receive: the event stream's sinks and relays, and callbacks. One script per step, one method per script."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ResponseError

from fusion.kernel import defaults
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys
from fusion.store.layout.names import CALLBACKS
from fusion.store.scripting.host import ScriptHost, to_ms

#: Fields of a job that a delivery repeats; `seq` shows that the job exists.
_VOUCHED = ("success_task_handler", "failed_task_handler", "callback_url", "ended_at", "status", "reason", "seq")
#: Entries that one trim drops at most: takes some milliseconds of the server's time.
_TRIMMED = 10_000


class StreamEntry(NamedTuple):
    """An entry of the stream. `id` is Redis's own: when it was written, in ms since 1970, and a number."""

    id: str
    fields: dict[str, str]


class Mark(NamedTuple):
    """The last delivered event: its place in the numbering, and when it happened, in ms since 1970."""

    epoch: str
    n: str
    at_ms: int


class EventBroker(ScriptHost):
    """Sinks and relays of the event stream. Every method is safe to repeat, and one round trip unless stated otherwise. Reading hands an
    entry to one relay; no other gets it until that one acknowledges it or is dead."""

    def events_read(
        self, sink: str, relay: str, count: int, *, own: bool = False, dead: bool = False
    ) -> tuple[list[StreamEntry], str]:
        """Hand out up to `count` entries for a sink, and the id of the last one handed out. `own`: start with entries that this relay holds
        already; `dead`: then those that dead relays hold. The first call makes the sink's group, from the oldest entry on."""
        keys = {"events": self.keys.events, "sink": self.keys.sink(sink)}
        args = {"sink": sink, "relay": relay, "count": count, "own": int(own), "dead": int(dead)}
        rows, last = self._script("events_read")(keys, args)
        return [to_entry(row) for row in rows], codec.text(last)

    def events_ack(
        self, sink: str, delivered: Sequence[str], parked: Sequence[tuple[str, str, str]], mark: Mark
    ) -> tuple[int, int]:
        """Record that the sink has the entries `delivered`, and will never take the `parked` ones (id, reason, document). Returns how many of
        each are new."""
        keys = {"events": self.keys.events, "sink": self.keys.sink(sink), "parked": self.keys.parked(sink)}
        args = {**mark._asdict(), "sink": sink, "parked_max": defaults.PARKED_MAX, "n_ids": len(delivered)}
        rest = [*delivered, *(part for row in parked for part in row)]
        acknowledged, refused = self._script("events_ack")(keys, args, rest)
        return int(acknowledged), int(refused)

    def events_trim(self, keep: int) -> int:
        """Drop some of the oldest entries that all sinks have, as long as more than about `keep` are left; returns how many."""
        args = {"keep": keep, "abandoned_s": defaults.SINK_ABANDONED, "limit": _TRIMMED}
        return int(self._script("events_trim")({"events": self.keys.events}, args))

    def relay_beat(
        self, name: str, incarnation: str, lease: float, ttl: float, sinks: Sequence[str], backlog: int, fields: dict[str, Any]
    ) -> bool:
        """Register a relay, or renew its heartbeat; False if a live other has the name. `backlog`: events to keep for sinks, 0 for a relay
        that has none."""
        pairs = codec.to_pairs(fields)
        args = {
            "name": name,
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "ttl": int(ttl),
            "cap": backlog,
            "abandoned_s": defaults.SINK_ABANDONED,
            "n_pairs": len(pairs),
        }
        keys = {**self._presence(name), "meta": self.keys.events_meta}
        return bool(self._script("relay_beat")(keys, args, [*pairs, *sinks]) == b"ok")

    def relay_leave(self, name: str, incarnation: str) -> bool:
        """Unregister a relay; False if another has the name by now."""
        return bool(self._script("relay_leave")(self._presence(name), {"name": name, "incarnation": incarnation}) == b"ok")

    def served(self, sinks: Sequence[str], within: float) -> bool:
        """Return True if for each of these sinks a relay has reported in the last `within` seconds."""
        (seconds, micros), *beats = batch(
            self.connection, lambda pipe: (pipe.time(), [pipe.hget(self.keys.sink(sink), "served_ms") for sink in sinks])
        )
        now_ms = seconds * 1000 + micros // 1000
        return all(now_ms - codec.number(beat) <= within * 1000 for beat in beats)

    def callbacks_served(self, within: float) -> bool:
        """Return True if no callback waits for delivery, or a relay has reported in the last `within` seconds: each has a courier."""
        if not self.connection.exists(self.keys.queue(CALLBACKS)):
            return True
        (seconds, micros), last = batch(
            self.connection, lambda pipe: (pipe.time(), pipe.zrange(self.keys.relays, 0, 0, desc=True, withscores=True))
        )
        return bool(last) and seconds * 1000 + micros // 1000 - last[0][1] <= within * 1000

    # -- what people change

    def unpark(self, sink: str, entries: Sequence[str]) -> int:
        """Delete parked events that were delivered after all; returns how many there were."""
        return int(self.connection.xdel(self.keys.parked(sink), *entries)) if entries else 0

    def forget(self, sink: str) -> bool:
        """Keep nothing for this sink any more, including parked events; False if it was not known. Once no sink is left, the stream is kept
        short again. Three round trips."""
        destroyed, deleted = batch(
            self.connection,
            lambda pipe: (
                pipe.xgroup_destroy(self.keys.events, sink),
                pipe.delete(self.keys.sink(sink), self.keys.parked(sink)),
            ),
            raise_on_error=False,
        )
        if not sink_groups(self.connection, self.keys):
            self.connection.hdel(self.keys.events_meta, "cap", "cap_until")
        return destroyed == 1 or (isinstance(deleted, int) and deleted > 0)

    def _presence(self, name: str) -> dict[str, str]:
        return {"relay": self.keys.relay(name), "relays": self.keys.relays}


def to_entry(row: Any) -> StreamEntry:
    """Make an entry of a reply's id and its flat list of fields."""
    texts = [codec.text(part) for part in row[1]]
    return StreamEntry(codec.text(row[0]), dict(zip(texts[::2], texts[1::2], strict=True)))


def sink_groups(connection: Redis, keys: Keys) -> list[dict[str, Any]]:
    """Read the groups of the event stream, one for each sink."""
    try:
        found: Any = connection.xinfo_groups(keys.events)
        return list(found)
    except ResponseError as error:
        if "no such key" not in str(error):
            raise
        return []


class CallbackBroker(ScriptHost):
    """The part of the Broker for couriers: the secret of deliveries, checks against their jobs' records, and endpoints that no longer accept
    callbacks. It changes no job."""

    def callbacks_refused(self) -> int:
        """Count the callbacks that were ever refused because too many waited."""
        found: Any = self.connection.get(self.keys.callbacks_refused)
        return codec.number(found)

    def callbacks_secret(self) -> bytes | None:
        """Read the key that signs deliveries; the first registered process made it."""
        found: Any = self.connection.get(self.keys.callbacks_secret)
        return found if found is None or isinstance(found, bytes) else str(found).encode()

    def agree(self, deliveries: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Compare each delivery with the record of its job. True if the record agrees: the URL is one of the job's, and how and when it ended
        is the same. A delivery with a text of its own is of no job: only a seal shows that it is Fusion's."""
        rows = batch(
            self.connection,
            lambda pipe: [pipe.hmget(self.keys.job(str(sent.get("job_id"))), _VOUCHED) for sent in deliveries],
            raise_on_error=False,
        )
        return [_agrees(sent, row) for sent, row in zip(deliveries, rows, strict=True)]

    def endpoint_gone(self, url: str) -> bool:
        """Record that this URL accepts no more callbacks; False if that was known."""
        args = {"digest": codec.digest(url), "keep": defaults.GONE_MAX}
        return bool(self._script("endpoint_gone")({"gone": self.keys.callbacks_gone}, args))

    def tell_verdict(self, url: str, level: str, bad: bool, nonce: str, word: str, body: str) -> str | None:
        """Accept a callback that sends `url` this body, unless it last received a verdict that is as `bad` as that. Returns the callback's id;
        empty if it received that already; None if too many callbacks wait. `level`: the word from which on a verdict is bad; each has its own
        memory. A resend with the same `nonce` answers alike."""
        args = {
            "watch": codec.digest(f"{url} {level}"),
            "bad": int(bad),
            "nonce": nonce,
            "url": url,
            "word": word,
            "body": body,
            "secret": secrets.token_hex(32),
            "ttl": defaults.VERDICTS_TTL,
        }
        found = codec.text(self._script("tell_verdict")({"verdicts": self.keys.callbacks_verdicts}, args))
        return None if found == "full" else found

    def gone(self, urls: Sequence[str]) -> list[bool]:
        """Return for each URL True if it accepts no more callbacks."""
        if not urls:
            return []
        found: Any = self.connection.zmscore(self.keys.callbacks_gone, [codec.digest(url) for url in urls])
        return [score is not None for score in found]

    def readmit_endpoint(self, url: str) -> bool:
        """Send this URL callbacks again; False if it was not recorded as refusing them."""
        self.check_writer()
        return bool(self.connection.zrem(self.keys.callbacks_gone, codec.digest(url)))


def _agrees(sent: Mapping[str, Any], row: Any) -> bool:
    if isinstance(row, Exception) or row[6] is None or "body" in sent:
        return False
    *urls, ended_at, status, reason, _ = (codec.text(value) for value in row)
    ended = "expired" if (status, reason) == ("canceled", "expired") else status
    return sent.get("url") in urls and (sent.get("ended_at"), sent.get("status")) == (ended_at, ended)
