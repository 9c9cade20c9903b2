"""The server starts only where somebody said who may ask; and tokens are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fusion.kernel.timeutil import now
from fusion.web.auth import Bearer, TokenFile, new_token, parse_tokens
from fusion.web.exchange import HttpError, Request
from tests.cli.conftest import Invoke, run_worker
from tests.kit.process import ROOT
from tests.web.conftest import Start
from tests.web.harness import ServerProcess, Tokens

# -- closed by default


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "without a token nobody could use the service"),
        (("--host", "0.0.0.0"), "without a token nobody could use the service"),
        (("--host", "::"), "without a token nobody could use the service"),
        (("--host", "0.0.0.0", "--no-auth"), "--no-auth would let anybody who reaches 0.0.0.0 in"),
        (("--host", "::", "--no-auth"), "--no-auth would let anybody who reaches :: in"),
        (("--host", "", "--no-auth"), "(from flag --host) is not valid: use a text that is not empty"),
        (("--tokens", "EMPTY"), "holds no token"),
        (("--tokens", "GOOD", "--no-auth"), "exclude each other"),
        (("--host", "no such host", "--no-auth"), "(from flag --host) is not valid: use a host's name"),
        (("--host", "no-such-host.invalid", "--no-auth"), "is not an address of this machine"),
        (("--host", "192.0.2.1", "--no-auth"), "--no-auth would let anybody who reaches 192.0.2.1 in"),
        (("--port", "65536", "--no-auth"), "65536"),
        (("-q", "-v", "--no-auth"), "exclude each other"),
    ],
)
def test_it_does_not_start_open(
    invoke: Invoke, redis_url: str, tokens: Tokens, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").write_text("# nobody\n")
    names = {"EMPTY": str(tmp_path / "empty"), "GOOD": str(tokens.path)}
    ended = invoke("server", "--port", "0", *(names.get(arg, arg) for arg in args), code=2)
    assert ended.stdout == ""
    assert said in ended.stderr
    if "token" in said or "anybody" in said:
        assert "server token NAME --scope operate --file" in ended.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read: No such file"),
        ("a:read:xyz", "line 1: use name:scope"),
        (f"# x\n\na b:read:{'0' * 64}", "line 3: use name:scope"),
        (f"a:root:{'0' * 64}", "line 1: scope 'root': use read, operate, admin"),
        (f"a::{'0' * 64}", "line 1"),
        (f"a:read:{'0' * 63}", "line 1"),
        (f"a:read@:{'0' * 64}", "line 1: use name:scope"),
        (f"a:read@sms+:{'0' * 64}", "line 1: queue name ''"),
        (f"a:read@s ms:{'0' * 64}", "line 1: use name:scope"),
        (f"a:read@_callbacks:{'0' * 64}", "line 1: queue name '_callbacks' is reserved"),
        (f"a:read@s*/x:{'0' * 64}", "line 1: queues 's*/x': use 1 to 128"),
        (f"a:read:{'0' * 64}:expires=", "line 1: use name:scope"),
        (f"a:read:{'0' * 64}:expires=2030-01-31", "line 1: '2030-01-31' has no time zone"),
        (f"a:read:{'0' * 64}:expires=2030-13-31T00:00Z", "line 1: '2030-13-31T00:00Z' is not a time"),
        (f"a:read@sms:{'0' * 64}\na:read:{'1' * 64}", "line 2: another token of the name 'a' is for other queues"),
    ],
)
def test_a_tokens_file_that_is_none(invoke: Invoke, redis_url: str, tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    ended = invoke("server", "--port", "0", "--tokens", str(path), code=1)
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr
    assert "0" * 60 not in ended.stderr, "no hash is shown"


def test_no_auth_on_this_machine(start: Start, redis_url: str) -> None:
    server = start(redis_url, "--no-auth")
    assert server.host == "127.0.0.1"
    assert server.ask("GET", "/api/v1/queues").status == 200
    assert server.ask("POST", "/api/v1/jobs", {"func": "tests.jobs.basic.noop"}).status == 201
    assert server.ask("GET", "/api/v1/queues", headers={"Host": "evil.example"}).status == 421


def test_a_public_address_with_tokens(start: Start, redis_url: str, tokens: Tokens) -> None:
    server = start(redis_url, env={"FUSION_SERVER_HOST": "0.0.0.0", "FUSION_SERVER_TOKENS_FILE": str(tokens.path)})
    assert "serving http://0.0.0.0:" in server.output
    server.host = "127.0.0.1"
    assert server.ask("GET", "/api/v1/queues", token=tokens.by_scope["read"]).status == 200
    assert server.ask("GET", "/api/v1/queues").status == 401


def test_a_port_that_is_taken(redis_url: str, service: ServerProcess) -> None:
    ended = run_worker("server", "--no-auth", "--port", str(service.port))
    assert ended.returncode == 1
    assert "can't listen at 127.0.0.1 port" in ended.stderr
    assert "choose another --port" in ended.stderr


def test_without_waitress_it_says_what_to_install(redis_url: str) -> None:
    code = "import sys; sys.modules['waitress'] = None; sys.argv = ['run_worker.py', 'server', '--no-auth']; import run_worker"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "Error: the HTTP service needs waitress; install it with: pip install 'fusion-queue[web]' [FUS-214]\n"


# -- tokens are made


def test_a_token_is_shown_once_and_kept_as_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    shown = [
        run_worker("server", "token", name, "--scope", "read", "--scope", "operate", "--file", str(path)) for name in ("a", "b")
    ]
    first, second = (one.stdout.strip() for one in shown)
    assert first != second
    assert len(first) >= 43
    stored = path.read_text()
    assert first not in stored
    assert path.stat().st_mode & 0o777 == 0o600
    known = parse_tokens(stored, "")
    assert [(token.actor.name, sorted(token.actor.scopes)) for token in known] == [
        ("a", ["operate", "read"]),
        ("b", ["operate", "read"]),
    ]
    again = run_worker("server", "token", "a", "--scope", "read", "--file", str(path))
    assert (again.returncode, again.stdout) == (2, "")
    assert "choose another name" in again.stderr
    assert path.read_text() == stored


def test_a_token_and_its_line_are_printed() -> None:
    made = run_worker("server", "token", "web-1", "--scope", "admin")
    token, line = made.stdout.splitlines()
    assert parse_tokens(line, "")[0].actor.scopes == {"read", "operate", "admin"}
    assert token not in line


def test_a_token_for_some_queues_and_a_time(invoke: Invoke) -> None:
    made = invoke("server", "token", "t", "--scope", "operate", "--queue", "sms,sms-*", "--queue", "a?", "--expires", "90d")
    (token,) = parse_tokens(made.stdout.splitlines()[1], "")
    assert token.actor.scope.queues == ("sms", "sms-*", "a?")
    assert token.expires is not None
    assert 89.9 < (token.expires - now()).total_seconds() / 86400 < 90.1
    made = invoke("server", "token", "t", "--scope", "read", "--expires", "2090-01-31T02:00+02:00")
    assert made.stdout.endswith(":expires=2090-01-31T00:00:00Z\n")
    assert parse_tokens(made.stdout.splitlines()[1], "")[0].actor.scope.all


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--expires", "soon"), "--expires 'soon': use a duration like 90d"),
        (("--expires", "2090-01-31T00:00"), "or a time with its zone like 2030-01-31T00:00Z"),
        (("--expires", "2020-01-31T00:00Z"), "is over already"),
        (("--expires", "0"), "is over already"),
        (("--expires", "99999d"), "use a duration like 90d"),
        (("--queue", "a:b"), "queue name 'a:b'"),
        (("--queue", "a+b"), "queue name 'a+b'"),
        (("--queue", "failed"), "is reserved"),
        (("--queue", ","), "name a queue, or leave the option out"),
    ],
)
def test_what_makes_no_such_token(invoke: Invoke, args: tuple[str, ...], said: str) -> None:
    ended = invoke("server", "token", "t", "--scope", "read", *args, code=2)
    assert ended.stdout == ""
    assert said in ended.stderr


def test_an_expired_token_is_told_so(tmp_path: Path) -> None:
    past, line = new_token("t", ["read"], expires=now() - timedelta(seconds=1))
    (tmp_path / "tokens").write_text(line + "\n" + (lasting := new_token("t", ["read"], expires=now() + timedelta(hours=1)))[1])
    asked = Bearer(TokenFile(str(tmp_path / "tokens")))
    with pytest.raises(HttpError, match=r"this token expired at 20\d\d-.*make a new one with") as caught:
        asked(Request("GET", "/", {"authorization": f"Bearer {past}"}))
    assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    assert caught.value.headers["WWW-Authenticate"] == 'Bearer realm="fusion", error="invalid_token"'
    assert asked(Request("GET", "/", {"authorization": f"Bearer {lasting[0]}"})).name == "t"


def test_a_line_is_added_to_a_file_without_a_last_newline(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# ours")
    invoke("server", "token", "a", "--scope", "read", "--file", str(path))
    assert len(parse_tokens(path.read_text(), "")) == 1


def _linked(path: Path) -> None:
    (path.parent / "theirs").write_text("# theirs")
    path.symlink_to(path.parent / "theirs")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (_linked, "it is a link"),
        (lambda path: path.symlink_to(path.parent / "nowhere"), "it is a link"),
        (lambda path: (path.write_text("# ours"), path.chmod(0o602)), "may be written by others, who could add tokens"),
        (lambda path: path.parent.chmod(0o707), "may be written by others, who could add tokens"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: (path.write_text("# ours"), os.chown(path, 12345, -1)), "belongs to another user (uid 12345)"),
        (lambda path: (path.write_text("# ours"), path.chmod(0o660), os.chown(path, -1, 12345)), "may be written by others"),
    ],
)
def test_no_token_is_added_where_others_may_write(
    invoke: Invoke, tmp_path: Path, prepare: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "own" / "tokens"
    path.parent.mkdir(mode=0o700)
    try:
        prepare(path)
    except PermissionError:
        pytest.skip("needs root")
    before = {one: one.read_text() for one in path.parent.iterdir() if one.is_file()}
    ended = invoke("server", "token", "a", "--scope", "read", "--file", str(path), code=1)
    assert (ended.stdout, ended.stderr.count("\n")) == ("", 1)
    assert said in ended.stderr
    assert {one: one.read_text() for one in path.parent.iterdir() if one.is_file()} == before


def test_a_folder_like_tmp_will_do(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(0o1777)
    for name in "ab":
        invoke("server", "token", name, "--scope", "read", "--file", str(tmp_path / "own" / "tokens"))
    assert len(parse_tokens((tmp_path / "own" / "tokens").read_text(), "")) == 2
    assert (tmp_path / "own" / "tokens").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "args", [("a b", "--scope", "read"), ("a:b", "--scope", "read"), ("a\nb", "--scope", "read"), ("a",), ("a", "--scope", "x")]
)
def test_what_makes_no_token(invoke: Invoke, tmp_path: Path, args: tuple[str, ...]) -> None:
    assert invoke("server", "token", *args, "--file", str(tmp_path / "tokens"), code=2).stdout == ""
    assert not (tmp_path / "tokens").exists()
