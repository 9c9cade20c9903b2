"""Writes what follows from the code: the typed signatures of options, the tables of options, the references of settings, commands, names
and the HTTP API.

`make reference` writes them; tests/architecture/test_reference.py compares.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, cast

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fusion  # noqa: E402
from fusion.cli.main import cli  # noqa: E402
from fusion.decorators import job as decorator  # noqa: E402
from fusion.enqueue.options import CALL, ENTRY, JOB, OPTIONS, Option  # noqa: E402
from fusion.kernel.codes import KINDS  # noqa: E402
from fusion.kernel.codes import table as code_table  # noqa: E402
from fusion.kernel.program import WRITTEN  # noqa: E402
from fusion.metrics import catalogue as metric_catalogue  # noqa: E402
from fusion.settings import Settings  # noqa: E402
from fusion.settings.groups import JobSettings, RedisSettings, WorkerSettings  # noqa: E402
from fusion.settings.reporting import ReportingSettings  # noqa: E402
from fusion.web.api import Api  # noqa: E402
from fusion.web.openapi.document import document  # noqa: E402
from tools import http_reference  # noqa: E402

_DEFAULT = "  [default: "
_TYPED = '''"""The options of an enqueue as types, made of their declarations in `fusion.enqueue.options` by `make reference`: edit those.

For `**options: Unpack[...]`; imported by type checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from fusion.callbacks import Callback
from fusion.enqueue.kinds import AnyBatch
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
        ("EntryJobOptions", "TypedDict", (ENTRY,), "Options of the jobs of a cron entry."),
        ("JobOptions", "EntryJobOptions", (JOB,), "Options of a job."),
        ("CallOptions", "JobOptions", (CALL,), "Options of a job and of the call that sends it."),
        ("TaskOptions", "EntryJobOptions", (JOB, CALL), "Those of `@job`, where `batch` is another thing."),
    ):
        lines = [f'\n\nclass {name}({base}, total=False):\n    """{says}"""\n']
        those = [option for option in OPTIONS if option.of in of and (name, option.name) != ("TaskOptions", "batch")]
        lines += [f"    #: {option.meaning}\n    {option.name}: {option.type}" for option in those]
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


# -- metrics

_SOURCES = {
    metric_catalogue.FLEET: "Of the fleet: `/metrics` of the server, and `fusion metrics`",
    metric_catalogue.ANY: "Of every process, at its probe port",
    metric_catalogue.WORKER: "Of a worker",
    metric_catalogue.SCHEDULER: "Of a scheduler",
    metric_catalogue.RELAY: "Of a relay",
    metric_catalogue.SUPERVISOR: "Of the supervisor of `fusion start`",
}


def metrics() -> str:
    """Every metric, by the process that exports it."""
    parts = []
    for source, title in _SOURCES.items():
        rows = []
        for one in metric_catalogue.METRICS:
            if one.source == source:
                labels = ", ".join(f"`{label}`" for label in one.labels)
                full = {"": "", "labels": " Without `full` the label `queue` is empty.", "metric": " Only with `full`."}[one.full]
                rows.append((f"`{one.name}`", one.kind, labels, one.about + full))
        parts.append(f"**{title}**\n\n" + table(("metric", "type", "labels", "meaning"), rows))
    return "\n".join(parts)


def _placeholder(found: re.Match[str]) -> str:
    return "N" if found[1] == "value" else found[1].upper()


def alerts() -> str:
    """The alerts of deploy/prometheus."""
    text = (ROOT / "deploy/prometheus/fusion.rules.yml").read_text()
    rows = []
    for block in text.split("- alert: ")[1:]:
        summary = re.search(r'summary: "?(.*?)"?$', block, re.MULTILINE)
        description = re.search(r'description: "(.*)"$', block, re.MULTILINE)
        severity, wait = re.search(r"severity: (\w+)", block), re.search(r"for: (\w+)", block)
        assert summary and description and severity
        told = re.sub(r"\{\{ \$(?:labels\.)?(\w+).*?\}\}", _placeholder, f"{summary[1]}. {description[1]}")
        rows.append((f"`{block.split()[0]}`", severity[1], wait[1] if wait else "at once", told))
    return table(("alert", "severity", "after", "meaning, and what to do"), rows)


# -- settings

#: Reader -> the unit of what it reads.
_UNITS = {
    "seconds": "seconds",
    "size": "bytes",
    "percent": "percent",
    "flag": "true or false",
    "names": "list",
    "ports": "list",
    "path": "path",
}
#: Flags whose setting has another name, in all commands and in `server` alone; then the commands whose flags are settings.
_RENAMED = {
    "url": "redis_url",
    "results_ttl": "result_ttl",
    "tokens": "server_tokens_file",
    "allowed_host": "server_allowed_hosts",
    "cors_origin": "server_cors_origins",
    "compat": "metrics_compat",
}
_OF_SERVER = {name: f"server_{name}" for name in ("host", "port", "threads")}
_SETTING_COMMANDS = ("worker", "start", "scheduler", "relay", "server", "redis")
_SETTINGS_HEAD = """# Settings

Made from the code by `make reference`.

A setting is given by a flag, by its environment variable, or by its name in capitals in the `-c` module (`LEASE = 10`). The first of these
that names it wins; if none does, the default holds.

Durations are seconds, or `90s`, `5m`, `2h`, `1d`; sizes are bytes, or `512k`, `1m`; lists have commas between their items.
"""


def _comments(group: type) -> dict[str, str]:
    """The `#:` comment above each field of a class."""
    found, said = {}, []
    for line in inspect.getsource(group).splitlines():
        if match := re.match(r"    #: (.*)", line):
            said.append(match[1])
        elif match := re.match(r"    (\w+): .*=", line):
            found[match[1]] = " ".join(said)
            said = []
    return found


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from _commands(found, f"{path} {name}")


def _flags() -> dict[str, str]:
    """The flag of each setting that has one."""
    found: dict[str, str] = {}
    for path, command in _commands(cli, "fusion"):
        if path.count(" ") and path.split()[1] in _SETTING_COMMANDS:
            for param in command.params:
                renamed = _RENAMED | _OF_SERVER if path.split()[1] == "server" else _RENAMED
                name = renamed.get(str(param.name), str(param.name))
                if isinstance(param, click.Option) and name in Settings.__dataclass_fields__:
                    found.setdefault(name, max(param.opts, key=len))
    return found


def _default(name: str, value: object) -> str:
    if name == "home":
        return "`~/.local/state/fusion`"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"`{','.join(map(str, value)) if isinstance(value, (tuple, list)) else value}`"


def settings() -> str:
    """docs/settings.md."""
    flags, parts = _flags(), [_SETTINGS_HEAD]
    for title, group in (
        ("Redis", RedisSettings),
        ("Workers", WorkerSettings),
        ("Jobs", JobSettings),
        ("Reports and access", ReportingSettings),
    ):
        rows = []
        comments = _comments(group)
        for name in group.__annotations__:
            field = Settings.__dataclass_fields__[name]
            if not comments[name].endswith((".", ")")):
                raise SystemExit(f"setting {name} has no sentence: write one in a `#:` comment above it")
            kind = field.metadata["read"].__qualname__.split(".")[0]
            unit = field.metadata["unit"] or _UNITS.get(kind, "")
            variables = "<br>".join(f"`{variable}`" for variable in (f"FUSION_{name.upper()}", *field.metadata["env"]))
            flag = f"`{flags[name]}`" if name in flags else ""
            rows.append((f"`{name}`", variables, flag, _default(name, field.default), unit, comments[name]))
        parts.append(
            f"\n## {title}\n\n{group.__doc__}\n\n" + table(("setting", "environment", "flag", "default", "unit", "meaning"), rows)
        )
    return "".join(parts)


# -- commands

_CLI_HEAD = """# Commands

Made from the code by `make reference`. Commands are typed as `fusion COMMAND`, in a checkout as `run_worker.py COMMAND`. What has no flag may be
a setting: [settings.md](settings.md).

| exit code | means |
|---|---|
| 0 | it did what it was asked |
| 1 | it could not, or not all of it |
| 2 | it was typed wrongly |
| 130 | Ctrl-C |

Other exit codes stand with their command.
"""
_SHARED_FLAGS = ("url", "config", "prefix", "path", "verbose")


def _plain(text: str) -> str:
    """A help text as paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).replace("\b\n", "").split("\n\n"))


def _record(param: click.Parameter) -> tuple[str, str] | None:
    """A flag and its help; None for an argument."""
    found = param.get_help_record(click.Context(cli)) if isinstance(param, click.Option) else None
    return (f"`{found[0]}`", " ".join(found[1].split())) if found else None


def _rows(params: Iterable[click.Parameter], told: Iterable[click.Parameter] = ()) -> str:
    known = {_record(param) for param in told}
    rows = [found for param in params if (found := _record(param)) and found not in known]
    return table(("flag", "meaning"), rows) if rows else ""


def commands() -> str:
    """docs/cli.md."""
    found = {path.removeprefix("fusion "): command for path, command in _commands(cli, "fusion")}
    shared = [param for param in found["info"].params if param.name in _SHARED_FLAGS]
    parts = [_CLI_HEAD, "\nAll commands but `completion` and `redis` have these flags:\n\n", _rows(shared)]
    for name, command in found.items():
        if name == "fusion":
            continue
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        parts.append(f"\n{'###' if ' ' in name else '##'} {name}\n\n`fusion {name} {usage}`\n\n{_plain(command.help or '')}\n")
        if flags := _rows(command.params, (*shared, *(found["worker"].params if name == "start" else ()))):
            parts.append(f"\n{flags}")
        if examples := re.findall(rf"^  ({re.escape(WRITTEN)}.*)$", command.epilog or "", re.MULTILINE):
            parts.append("\n```sh\n" + "\n".join(examples).replace(WRITTEN, "fusion") + "\n```\n")
    return "".join(parts)


# -- names

_API_HEAD = """# Names of the package

Made from the code by `make reference`: signatures and docstrings of what `fusion` exports; of members first sentences. Options of jobs:
[producers.md](producers.md).
"""


def _sentence(thing: object) -> str:
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", text)[0]


def _text(thing: object) -> str:
    """Return the whole docstring as Markdown: indented paragraphs are blocks of code."""
    parts = []
    for part in re.split(r"\n\n(?!    )|(?:(?<=:)|(?<=\.)|(?<=\)))\n\n(?=    )", inspect.getdoc(thing) or ""):
        indented = part.startswith("    ")
        parts.append(f"```python\n{inspect.cleandoc(part)}\n```" if indented else re.sub(r"::$", ":", part))
    return "\n\n".join(parts)


class _Bare:
    """An annotation or a default that a signature shows as it is written."""

    def __init__(self, text: object) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return self._text


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and not isinstance(default, (str, int, float, tuple, type(None))):
        default = _Bare("...")
    kind = parameter.annotation if parameter.annotation is parameter.empty else _Bare(parameter.annotation)
    return parameter.replace(annotation=kind, default=default)


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    shown = [_bare(one) for one in signature.parameters.values() if one.name not in ("self", "cls")]
    if isinstance(function, type) or signature.return_annotation is signature.empty:
        return name + str(signature.replace(parameters=shown, return_annotation=signature.empty))
    return name + str(signature.replace(parameters=shown, return_annotation=_Bare(signature.return_annotation)))


def _members(kind: type) -> Iterator[tuple[str, str]]:
    for name, member in inspect.getmembers_static(kind):
        if name.startswith("_") or isinstance(member, (type, int, str)):
            continue
        if isinstance(member, property):
            yield f"`{name}`", _sentence(member)
        elif inspect.isfunction(found := getattr(member, "__func__", member)):
            yield f"`{_signature(name, found)}`", _sentence(found)


def names() -> str:
    """docs/api.md."""
    parts = [_API_HEAD]
    for name in fusion.__all__:
        thing = decorator if name == "job" else getattr(fusion, name)  # the module of that name may be loaded
        if name.startswith("__") or name == "PriorityQueue":
            continue
        parts.append(f"\n## {name}\n\n")
        if isinstance(thing, type) and issubclass(thing, BaseException):
            parts.append(f"{_text(thing)}\n")
        elif isinstance(thing, type) and issubclass(thing, Enum):
            parts.append(f"{_sentence(thing)} {', '.join(f'`{item.value}`' for item in thing)}.\n")
            continue
        elif isinstance(thing, type):
            title = "PriorityQueue, also named Queue: " if name == "Queue" else ""
            parts.append(f"`{_signature(name, thing)}`\n\n{title}{_text(thing)}\n")
        else:
            called = thing if inspect.isfunction(thing) else type(thing).__call__
            parts.append(f"`{_signature(name, called)}`\n\n{_text(called)}\n")
        if isinstance(thing, type) and (rows := list(_members(thing))):
            parts.append("\n" + table(("member", "meaning"), rows))
    return "".join(parts)


def _described() -> dict[str, Any]:
    return document(Api(cast(Any, None), ()).routes())


def openapi() -> str:
    """docs/openapi.json: a line for each operation, each schema and all else."""
    return f"{_lines(_described(), 3)}\n"


def _lines(value: Any, depth: int) -> str:
    if not depth or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(one, depth - 1)}" for name, one in sorted(value.items())) + "\n}"


def marked(path: str, **contents: str) -> tuple[Path, str]:
    """The document with new content between its markers of each name."""
    file = ROOT / path
    text = file.read_text()
    for name, content in contents.items():
        start, end = f"<!-- {name}: made by `make reference` -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{path} has no lines {start.strip()} and {end.strip()}")
        text = f"{before}{start}{content}{end}{after}"
    return file, text


# -- codes

_CODES_HEAD = """# Errors and their codes

Made from the code by `make reference`.

Texts of errors end with a code, like `[FUS-113]`; exceptions have it as `error.code`, findings of `fusion doctor --json` as `code`. A code never
changes its meaning and is never given again. Searching for it finds its place here.
"""


def codes() -> str:
    """docs/errors.md."""
    parts, kind = [_CODES_HEAD], ""
    for code, entry in code_table().items():
        if KINDS[code[4]] != kind:
            kind = KINDS[code[4]]
            parts.append(f"\n## {kind}\n")
        parts.append(f"\n### {code}\n\n`{entry.name}`: {entry.meaning}\n\n- Why: {entry.why}\n- What to do: {entry.do}\n")
    return "".join(parts)


def documents() -> Iterator[tuple[Path, str]]:
    """All that is made: file and content."""
    yield ROOT / "fusion/enqueue/typed.py", typed()
    yield marked("docs/producers.md", options=options())
    yield marked("docs/http.md", fields=fields())
    yield marked("docs/metrics.md", metrics=metrics(), alerts=alerts())
    yield ROOT / "docs/settings.md", settings()
    yield ROOT / "docs/cli.md", commands()
    yield ROOT / "docs/api.md", names()
    yield ROOT / "docs/errors.md", codes()
    yield ROOT / "docs/openapi.json", openapi()
    yield ROOT / "docs/http-reference.md", http_reference.reference(_described())


def main() -> None:
    """Write what has changed."""
    for path, content in documents():
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
