"""`tree`: the graph around a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo, echo_json
from fusion.cli.tables import table
from fusion.cli.watch import watchable

if TYPE_CHECKING:
    from fusion.jobs.tree import JobTree, TreeNode

SCHEMA = 1
#: Levels that are indented; a farther job shows the number of its level.
_DEEPEST = 6
#: Most other jobs that a line names.
_NAMED = 2


@command(example="run_worker.py tree 5d0fab4e-8b0b-4f0e-9a51-7d3cb7e1b6b7\n  run_worker.py tree report-7 --json | jq .nodes")
@click.argument("job_id")
@click.option("--limit", type=click.IntRange(1, 1000), default=1000, show_default=True, help="That many jobs at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@shared_options
@watchable
def tree(cli: Cli, job_id: str, limit: int, as_json: bool) -> None:
    """Show what a job waits for, and what waits for it.

    It includes ended jobs at any distance, the nearest first. Each job is shown once, under one that it waits for (in the upper part: under one
    that waits for it); ALSO names the others. `gone`: its record no longer exists.
    """
    from fusion.jobs.tree import tree as look
    from fusion.store.access import inspector_of
    from fusion.store.layout.names import check_job_id

    found = look(inspector_of(cli.looking), check_job_id(job_id), limit)
    if as_json:
        from fusion.views.job import TreeView

        echo_json(TreeView.of(found))
        return
    for line in drawn_tree(found):
        echo(line)


def drawn_tree(found: JobTree, within: int | None = -1) -> list[str]:
    """Return the tree as text, `within` this number of columns, or those of the terminal."""
    root = found.nodes[0]
    below = {node.id: list(node.parents) for node in found.nodes}
    above: dict[str, list[str]] = {node.id: [] for node in found.nodes}
    for node in found.nodes:
        for parent in node.parents:
            above[parent].append(node.id)
    rows = [_row(root, 0, ())]
    for title, side, ties in (
        ("It waits, or waited, for", [node for node in found.nodes if node.level < 0], above),
        ("For it wait, or waited", [node for node in found.nodes if node.level > 0], below),
    ):
        if side:
            rows += [("", "", "", "", ""), (f"{title}:", "", "", "", ""), *_branches(root.id, side, ties)]
    lines = table(("FUNCTION", "STATE", "QUEUE", "JOB", "ALSO"), rows, within=within)
    if len(found.nodes) == 1:
        lines += ["", "It waits for no other job, and none for it"]
    if found.cut:
        lines += ["", f"There are more: these are the {len(found.nodes)} nearest"]
    return lines


def _branches(root: str, side: Sequence[TreeNode], ties: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return one line for each job, under the first related job that is nearer to the root."""
    distances = {root: 0, **{node.id: abs(node.level) for node in side}}
    under: dict[str, list[TreeNode]] = {}
    homes = {}
    for node in side:
        near = [one for one in ties[node.id] if distances.get(one) == abs(node.level) - 1]
        homes[node.id] = near[0] if near else root
        under.setdefault(homes[node.id], []).append(node)
    rows, left = [], list(reversed(under.get(root, ())))
    while left:
        node = left.pop()
        rows.append(_row(node, abs(node.level), [one for one in ties[node.id] if one != homes[node.id]]))
        left += reversed(under.get(node.id, ()))
    return rows


def _row(node: TreeNode, depth: int, also: Sequence[str]) -> tuple[str, ...]:
    number = f"{depth}: " if depth > _DEEPEST else ""
    more = f" +{len(also) - _NAMED}" if len(also) > _NAMED else ""
    function = "  " * min(depth, _DEEPEST) + number + (node.function or "?")
    return function, node.status, node.queue or "-", node.id, ", ".join(also[:_NAMED]) + more
