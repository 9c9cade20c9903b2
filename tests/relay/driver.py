"""A relay whose sinks do what its arguments say: `python -m tests.relay.driver good=FILE hang raise down=FILE slow=FILE odd=FILE`."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence

from fusion.events.event import JobEvent
from fusion.events.sink import Rejected, Sink, SinkUnavailable
from fusion.relay.process import RelayProcess
from fusion.settings import Settings
from fusion.sinks.jsonl import JsonLinesSink


class Told:
    """A file that is written to as `kind` says; `path` of `down` names a file while which exists nothing is taken, and PATH.tries gets a
    byte for each try."""

    all_events = True

    def __init__(self, kind: str, path: str) -> None:
        self.name = kind
        self._file = JsonLinesSink(path, 10**9, 0) if path else None
        self._path = path

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        if self.name == "hang":
            time.sleep(3600)
        if self.name == "raise":
            raise RuntimeError("what it was given: S3CR3T")
        if self.name == "down" and os.path.exists(f"{self._path}.down"):
            with open(f"{self._path}.tries", "ab") as tries:
                tries.write(b".")
            raise SinkUnavailable("503 of the test", retry_after=0.01)
        if self.name == "slow":
            time.sleep(0.05)
        refused = [event for event in events if self.name == "odd" and event.job_id.endswith("7")]
        if self.name == "poison" and any(event.job_id == "j7" for event in events):
            raise ValueError("S3CR3T")
        if self._file is not None:
            self._file.write([event for event in events if event not in refused])
        return [Rejected(event, "it ends with 7") for event in refused]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sinks: list[Sink] = [Told(*argument.partition("=")[::2]) for argument in sys.argv[1:]]
    sys.exit(RelayProcess(Settings.load(), sinks).run())
