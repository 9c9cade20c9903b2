"""The dashboard for `benchmarks.million`: every page, asked anew each time, as if nobody had looked for five seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import redis

from fusion.dashboard.app import DashboardApp
from fusion.dashboard.calls import LONGEST
from fusion.web.auth import ANONYMOUS
from tests.browser.house import addresses
from tests.browser.staged import stage
from tests.dashboard.browser import Browser
from tests.dashboard.test_cost import furnish, spent

#: Milliseconds that 19 of 20 looks at a page take at most.
LOOK = 200.0
#: Looks a second at a page, for how many of them, and the milliseconds of Redis that each may need.
LOOKS, OF, REDIS = 20, 200, 1.0


class Looks:
    """Somebody who may do everything and looks at the dashboard in this process."""

    def __init__(self, conn: redis.Redis) -> None:
        app = DashboardApp(conn, lambda request: ANONYMOUS)
        self._clock = 0.0
        app._calls._clock = lambda: self._clock
        self._conn, self._browser = conn, Browser(app)

    @staticmethod
    def furnish(conn: redis.Redis) -> None:
        """What pages show besides jobs: one of everything, twenty workers that run jobs, and two hours of history of each queue. FUSION_REDIS_URL
        must name the same Redis."""
        stage(conn)
        furnish(conn, 0, 0)

    def addresses(self) -> list[str]:
        """Every page, and what is searched for most."""
        (group, *_) = self._conn.zrevrange("rq:failures", 0, 0)
        texts = ("state:queued", "state:failed", "error:Timeout", "queue:q3", "state:failed+queue:q3", "nobody")
        return [
            *addresses(),
            f"/failures/{group.decode()}",
            "/queues/q3",
            "/jobs/waits-q3-17",
            *(f"/jobs?q={text}" for text in texts),
        ]

    def pages(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Name and call of each page."""
        for path in self.addresses():
            yield f"page {path}", lambda path=path: self._look(path, LONGEST)

    def redis_time(self, path: str) -> float:
        """Milliseconds of Redis for a look, at LOOKS a second."""
        before = spent(self._conn)
        for _ in range(OF):
            self._look(path, 1 / LOOKS)
        return (spent(self._conn) - before) / OF / 1000

    def _look(self, path: str, later: float) -> Any:
        self._clock += later
        shown = self._browser.get(path)
        assert shown.status == 200, (path, shown.status, shown.text[:300])
        return shown
