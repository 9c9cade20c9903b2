"""RQ's test files with `rq` replaced by `fusion.rq`. A name at the top of a file that `fusion.rq` does not have becomes one that fails when it
is used, so that only the tests that use it fail."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

#: RQ's modules, as they stand in dotted names: `rq.worker.Worker`, also in texts, for `patch` and `--worker-class`.
_MODULES = (
    "callbacks cli command connections contrib cron cron_job_registry cron_scheduler_registry decorators defaults dependency dummy exceptions "
    "executions group intermediate_queue job job_lifecycle local logutils maintenance queue rate_limit registry repeat results scheduler scripts "
    "serializers suspension timeouts types utils version webhook worker worker_pool worker_registration"
).split()
_DOTTED = re.compile(rf"(?<![\w./:-])rq\.({'|'.join(_MODULES)})\b")
_HEAD = "from fusion_rq_suite import import_names as _import_names\n"


def rewritten(source: str) -> str:
    """Return the text of a test file that uses `fusion.rq`."""
    source = _DOTTED.sub(r"fusion.rq.\1", source)
    source = re.sub(r"(?m)^(\s*)from rq import", r"\1from fusion.rq import", source)
    source = re.sub(r"(?m)^(\s*)import rq$", r"\1import fusion.rq as rq", source)
    source = source.replace("'-c', 'import rq'", "'-c', 'import fusion.rq'")
    source = source.replace("['rqworker', ", "[sys.executable, '-m', 'fusion.rq', 'worker', ")
    return _tolerant(source)


def _tolerant(source: str) -> str:
    """Let imports from `fusion.rq` at the top of a file bind names that fail on use where there are none."""
    lines = source.split("\n")
    heads = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("fusion.rq")
    ]
    for node in reversed(heads):
        names = [(one.name, one.asname or one.name) for one in node.names]
        bound = ", ".join(name for _, name in names)
        wanted = ", ".join(repr(name) for name, _ in names)
        lines[node.lineno - 1 : node.end_lineno] = [f"{_HEAD}({bound},) = _import_names({node.module!r}, {wanted})"]
    return "\n".join(lines)


def copy_rewritten(source: Path, target: Path) -> None:
    """Copy RQ's folder of tests, with each Python file rewritten."""
    shutil.copytree(source, target)
    for path in target.rglob("*.py"):
        path.write_text(rewritten(path.read_text()))
