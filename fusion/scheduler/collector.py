"""The process that loads an app's modules and reports what they declare.

It is a separate process, so that an import (with threads, memory, a crash, a hang) never harms the scheduler, and a reload gets new code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from fusion.kernel.linux import set_parent_death_signal
from fusion.kernel.standard import standard_first


def main() -> None:
    """Read one JSON document from stdin, and write one line of JSON to the descriptor that it names. Its stdout is its parent's stderr."""
    set_parent_death_signal(signal.SIGKILL)  # a module that hangs must not outlive the scheduler
    wanted: dict[str, Any] = json.load(sys.stdin)
    if os.getppid() != wanted["parent"]:
        return  # the scheduler died before it sent the document
    os.set_inheritable(wanted["answer_to"], False)
    answer = os.fdopen(wanted["answer_to"], "w")
    sys.path[:] = standard_first(wanted["path"])

    from fusion.cron.declared import collect
    from fusion.cron.entry import revision
    from fusion.settings import Settings, use_settings

    use_settings(Settings(**wanted["settings"]))
    found = collect(wanted["modules"], wanted["tasks"], wanted["setup"])
    entries = []
    for entry in found.entries.values():
        plan, spec = entry.plan.to_json(), entry.spec()
        entries.append({"entry": entry.id, "plan": plan, "spec": spec, "rev": revision(plan, spec)})
    with answer:
        # A line end marks the end: the file end may never come, as a process that a module forked has the descriptor, too.
        document = {"entries": entries, "faults": found.faults, "broken": found.broken, "traces": found.traces}
        answer.write(json.dumps(document) + "\n")
