"""The page of one process: what it counted since its start and what it holds, on its probe port."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from fusion import __version__
from fusion.exceptions import ConfigurationError
from fusion.metrics.catalogue import INFO, LINK_UP, OUTAGES
from fusion.metrics.figures import Figures, Series


def process_page(
    figures: Figures,
    kind: str,
    seen: Series,
    rest: Callable[[Figures], object] | None = None,
    redis_up: bool | None = None,
    outages: int = 0,
) -> Callable[[], tuple[str, bytes]]:
    """Add what every process shows, and return the function that writes the page.

    `seen`: the counters that earlier pages of this process have shown; a new one is shown as 0. `rest` adds figures, too: in the thread that
    writes. `redis_up`: None for a process that has no link to Redis to tell of.
    """
    figures.put(INFO, 1, kind, __version__)
    if redis_up is not None:
        figures.put(LINK_UP, redis_up)
        figures.put(OUTAGES, outages)

    def write() -> tuple[str, bytes]:
        page = needed()
        if rest is not None:
            rest(figures)
        figures.begin_at_zero(seen)
        return page.CONTENT_TYPE, page.page(figures, process=True)

    return write


def needed() -> ModuleType:
    """Import what writes pages. ConfigurationError if prometheus-client is missing."""
    try:
        from fusion.metrics import page
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigurationError(
            "metrics need prometheus-client; install it with: pip install 'fusion-queue[prometheus]'", code="FUS-214"
        ) from None
    return page
