"""What mends a finding: calls that there are, with the scope that they need."""

from __future__ import annotations

from typing import Any, cast, get_args

import pytest

from fusion.doctor.finding import Deed, Finding, Remedy
from fusion.views.base import to_json
from fusion.views.finding import FindingView
from fusion.web.api import Api
from fusion.web.routing import SCOPES, Router

ROUTER = Router(Api(cast(Any, None), ()).routes())
#: To what each deed is done; names that need quoting in an address.
NAMES: dict[str, tuple[str, ...]] = {
    "resume_queue": ("a b",),
    "resume_fleet": (),
    "unquiet": ("web1.1", "web/2"),
    "stop": ("slow",),
    "cancel": ("slow",),
    "release": ("user:42", "first", "second"),
    "requeue": ("state:failed queue:q",),
    "quarantine": ("bad",),
    "run_entry": ("nightly",),
    "retry_callbacks": ("cb-1", "cb-2"),
}


def test_every_deed_is_here() -> None:
    assert set(NAMES) == set(get_args(Deed))


@pytest.mark.parametrize("deed", NAMES)
def test_its_calls_exist_and_need_no_more_than_it_says(deed: Any) -> None:
    mend = to_json(FindingView.of(Finding("FUS-434", "warn", "x", "", "", "", Remedy(deed, NAMES[deed]))))["mend"]
    assert mend["label"] and mend["calls"]
    for call in mend["calls"]:
        methods, _ = ROUTER.find(call["path"])
        route = ROUTER.choose(methods, call["method"])
        assert route.scope is not None and SCOPES.index(route.scope) <= SCOPES.index(mend["scope"])


def test_what_only_a_command_mends_has_no_calls() -> None:
    assert to_json(FindingView.of(Finding("FUS-467", "fail", "x", "", "", "run_worker.py relay")))["mend"] is None
