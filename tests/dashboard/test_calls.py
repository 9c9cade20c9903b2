"""What the API answered a page is shown again for a moment: the longer, the more it cost."""

from __future__ import annotations

import time

import pytest

from fusion.dashboard.calls import KEPT, LONGEST, Calls
from fusion.web.auth import ANONYMOUS
from fusion.web.exchange import Request, Response
from fusion.web.routing import Route, Router


@pytest.mark.parametrize(("took", "shown"), [(0.0, KEPT), (0.1, 2.0), (0.3, LONGEST)])
def test_an_answer_is_shown_again_for_twenty_times_as_long_as_it_took(took: float, shown: float) -> None:
    asked, clock = list[float](), [0.0]

    def answer(request: Request) -> Response:
        asked.append(clock[0])
        time.sleep(took)
        return Response.json({})

    calls = Calls(Router([Route("GET", "/api/v1/slow", answer, "read", "slow")]), lambda: clock[0])
    who = Request("GET", "/", {}, actor=ANONYMOUS)
    for clock[0] in (0.0, shown - 0.01, shown + 1.0):
        calls.get(who, "/api/v1/slow", {})
    assert asked == [0.0, shown + 1.0]
