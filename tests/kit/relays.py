"""Real relays: by the command line, or with sinks that behave as told."""

from __future__ import annotations

from tests.kit.process import Group, ProcessUnderTest

COMMAND = ("run_worker.py", "relay")
#: A relay with the sinks of `tests/relay/driver.py`.
DRIVER = ("-m", "tests.relay.driver")
#: Short enough for a test to see what happens after it.
LEASE = "0.5"


class Relays(Group):
    """Starts relays on one Redis and ends them with the test."""

    word = "relay"

    def start(
        self, *args: str, program: tuple[str, ...] = COMMAND, env: dict[str, str] | None = None, ready: bool = True
    ) -> ProcessUnderTest:
        relay = ProcessUnderTest(self.redis_url, self.next_log(), *program, *args, env={"FUSION_LEASE": LEASE, **(env or {})})
        self._started.append(relay)
        if ready:
            relay.says(" to ")
        return relay
