"""Writes what follows from the code: the typed signatures of options, the tables of options, the references of settings, commands and names.

`make reference` writes them; tests/architecture/test_reference.py compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fusion.enqueue.options import CALL, ENTRY, JOB, OPTIONS, Option  # noqa: E402

_DEFAULT = "  [default: "
_TYPED = '''"""The options of an enqueue as types, made of their declarations in `fusion.enqueue.options` by `make reference`: edit those.

For `**options: Unpack[...]`; imported by type checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from fusion.callbacks import Callback
from fusion.retry import Retry

Func = str | Callable[..., Any]
'''


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """A Markdown table."""
    return "\n".join([row(*head), "|" + "---|" * len(head), *(row(*cells) for cells in rows)]) + "\n"


def typed() -> str:
    """fusion/enqueue/typed.py."""
    parts = [_TYPED]
    for name, base, of, says in (
        ("EntryJobOptions", "TypedDict", ENTRY, "Options of the jobs of a cron entry."),
        ("JobOptions", "EntryJobOptions", JOB, "Options of a job."),
        ("CallOptions", "JobOptions", CALL, "Options of a job and of the call that sends it."),
    ):
        lines = [f'\n\nclass {name}({base}, total=False):\n    """{says}"""\n']
        lines += [f"    #: {option.meaning}\n    {option.name}: {option.type}" for option in OPTIONS if option.of == of]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _meaning(option: Option) -> tuple[str, str]:
    meaning, _, default = option.meaning.partition(_DEFAULT)
    return meaning, default.removesuffix("]")


def options() -> str:
    """All options, for producers."""
    rows = []
    for option in OPTIONS:
        meaning, default = _meaning(option)
        flags = ", ".join(f"`{spelling.flag}`" for spelling in option.spellings)
        more = f" Default: {default}." if default else ""
        rows.append((f"`{option.name}`", option.takes, meaning + more, flags or "none"))
    return table(("option", "takes", "meaning", "flag of `enqueue`"), rows)


def fields() -> str:
    """Those that HTTP takes."""
    rows = []
    for option in OPTIONS:
        for spelling in option.spellings:
            meaning, _, default = spelling.meaning.partition(_DEFAULT)
            rows.append(
                (
                    f"`{spelling.field}`",
                    spelling.reads.takes,
                    meaning + (f" Default: {default.removesuffix(']')}." if default else ""),
                )
            )
    return table(("field", "takes", "meaning"), rows)


def marked(path: str, name: str, content: str) -> tuple[Path, str]:
    """The document with new content between its markers of that name."""
    file = ROOT / path
    start, end = f"<!-- {name}: made by `make reference` -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = file.read_text().partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no lines {start.strip()} and {end.strip()}")
    return file, f"{before}{start}{content}{end}{after}"


def documents() -> Iterator[tuple[Path, str]]:
    """All that is made: file and content."""
    yield ROOT / "fusion/enqueue/typed.py", typed()
    yield marked("docs/producers.md", "options", options())
    yield marked("docs/http.md", "fields", fields())


def main() -> None:
    """Write what has changed."""
    for path, content in documents():
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
