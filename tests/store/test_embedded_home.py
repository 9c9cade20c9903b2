"""The built-in Redis trusts nothing that is not of its own user: directory, files, socket."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusion.cli.redis_commands import redis_group
from fusion.cli.worker import pid_file
from fusion.exceptions import ConfigurationError
from fusion.settings import Settings
from fusion.store.client.connections import connect, resolve_redis
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.redis_server.instance import EmbeddedRedis, running
from tests.kit.process import ROOT

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")

# Listens as another user at a socket in a directory of its own, like a Redis that is not ours; says what it was sent.
STRANGER = """
import os, socket, sys
os.umask(0)
os.setuid(int(sys.argv[2]))
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    print(peer.recv(1000), flush=True)
    peer.close()
"""


@pytest.fixture
def home(server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short state directory, FUSION_HOME of the test, not made yet."""
    above = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
    above.chmod(0o755)
    monkeypatch.setenv("FUSION_HOME", str(above / "home"))
    monkeypatch.setenv("FUSION_REDIS_SERVER", server_binary.path)
    before = os.umask(0o022)
    yield above / "home"
    os.umask(before)
    shutil.rmtree(above)


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedRedis]:
    found = EmbeddedRedis(home)
    yield found
    if os.access(home, os.W_OK) and os.stat(home).st_uid == os.geteuid():
        home.chmod(0o700)
        found.stop()


def readable(home: Path) -> list[str]:
    return [str(path.relative_to(home)) for path in home.rglob("*") if path.lstat().st_mode & 0o077]


def test_data_of_the_built_in_redis_are_readable_only_by_their_owner(home: Path, server: EmbeddedRedis) -> None:
    home.mkdir(mode=0o755)
    conn = connect(server.start())
    conn.set("payload", "otp 119134")
    conn.bgrewriteaof()
    conn.config_set("save", "1 1")
    conn.save()
    assert {"appendonlydir", "dump.rdb", "redis.lock", "redis.log", "redis.pid"} <= {path.name for path in home.iterdir()}
    assert readable(home) == []
    assert stat.S_IMODE(home.stat().st_mode) == 0o755, "the directory may hold other things"


def test_files_that_an_older_version_left_open_are_closed_to_others(home: Path, server: EmbeddedRedis) -> None:
    connect(server.start()).set("payload", "otp 119134")
    server.stop()
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (home / "notes.txt").write_text("not ours to touch")
    assert connect(server.start()).get("payload") == b"otp 119134"
    assert readable(home) == ["notes.txt"]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
def test_a_home_that_others_may_write_to_is_refused_with_the_fix(home: Path, server: EmbeddedRedis, mode: int) -> None:
    home.mkdir()
    home.chmod(mode)
    for action in (server.start, server.status, server.stop):
        with pytest.raises(ConfigurationError, match=rf"others may write to {home} \(mode {mode:o}\).*chmod go-w {home}"):
            action()
    assert list(home.iterdir()) == []
    home.chmod(0o700)
    server.start()
    assert running(home)
    home.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        running(home)


@as_root
@pytest.mark.parametrize("by_link", [False, True])
def test_a_home_of_another_user_is_refused_with_the_fix(home: Path, server: EmbeddedRedis, by_link: bool) -> None:
    if by_link:
        (home.parent / "real").mkdir(mode=0o700)
        home.symlink_to(home.parent / "real")
    else:
        home.mkdir(mode=0o700)
    os.chown(home, NOBODY, -1, follow_symlinks=False)
    with pytest.raises(
        ConfigurationError, match=f"{home} belongs to user {NOBODY}, and this process runs as user 0.*set FUSION_HOME"
    ):
        server.start()
    failed = CliRunner().invoke(redis_group, ["status"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith(f"Error: {home} belongs to user")
    assert list(home.iterdir()) == []
    if by_link:
        home.unlink()


@as_root
@pytest.mark.parametrize("ours", ["directory", "directory and file"])
def test_nothing_is_sent_to_the_socket_of_another_user(home: Path, server: EmbeddedRedis, ours: str) -> None:
    """The directory is ours now, and the file may be: who listens is what counts."""
    home.mkdir()
    home.chmod(0o777)
    stranger = subprocess.Popen(
        [sys.executable, "-c", STRANGER, str(server.socket), str(NOBODY)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "ready\n"
        home.chmod(0o700)
        if ours != "directory":
            os.chown(server.socket, 0, 0)
        for action in (lambda: running(home), server.status, server.start, lambda: resolve_redis(Settings(home=str(home)))):
            with pytest.raises(ConfigurationError, match=rf"redis\.sock is a socket of user {NOBODY}, not of user 0.*remove it"):
                action()
        stranger.terminate()
        said = stranger.stdout.read()
        assert set(said.splitlines()) <= {"b''"}
    finally:
        stranger.kill()
        stranger.communicate()


def test_a_link_in_place_of_the_socket_is_not_followed(home: Path, server: EmbeddedRedis) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(home.parent / "other.sock"))
        other.listen()
        server.socket.symlink_to(home.parent / "other.sock")
        with pytest.raises(ConfigurationError, match="is a link, no socket of user"):
            running(home)
    server.socket.unlink()


@pytest.mark.parametrize("name", ["redis.lock", "redis.pid", "redis.log"])
def test_links_in_the_home_are_not_followed(home: Path, server: EmbeddedRedis, name: str) -> None:
    home.mkdir()
    precious = home.parent / "precious"
    precious.write_text("keep me")
    (home / name).symlink_to(precious)
    with pytest.raises(ConfigurationError, match=rf"can't use {home}/{name}: it is a link; remove it"):
        server.start()
    assert precious.read_text() == "keep me"
    (home / name).unlink()


def test_a_pipe_in_the_home_holds_nobody_up(home: Path, server: EmbeddedRedis) -> None:
    home.mkdir()
    os.mkfifo(home / "redis.lock")
    with pytest.raises(ConfigurationError, match="it is not a regular file"):
        server.start()
    (home / "redis.lock").unlink()


def test_a_link_as_pid_file_is_not_followed(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "pid"
    precious.write_text("keep me")
    link.symlink_to(precious)
    with pytest.raises(ConfigurationError, match="it is a link; remove it, or choose another file"), pid_file(str(link)):
        pytest.fail("written")
    assert precious.read_text() == "keep me"
    with pid_file(str(tmp_path / "mine")):
        assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) & 0o444 == 0o444, "others may want to know, too"
        (tmp_path / "mine").unlink()
        (tmp_path / "mine").symlink_to(precious)
    assert precious.read_text() == "keep me"
    with pid_file(str(tmp_path / "mine2")):
        (tmp_path / "mine2").unlink()


def test_a_user_without_a_home_gets_no_directory_called_tilde(tmp_path: Path) -> None:
    """As in a container that runs under a number."""
    code = "import pwd; pwd.getpwuid = lambda uid: {}[uid]; from fusion.cli.main import main; main()"
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    for words in (
        ("redis", "start"),
        ("redis", "start", "--home", "~nobody-of-that-name/x"),
        ("worker", "q", "--embedded", "--burst"),
    ):
        ended = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert ended.returncode == 1 and "Traceback" not in ended.stderr, ended
        assert "this user has no home directory" in ended.stderr and "set FUSION_HOME" in ended.stderr, ended
        assert list(tmp_path.iterdir()) == []
