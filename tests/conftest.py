"""A private Redis for every test worker. Nothing here ever speaks to a server that the tests did not start themselves."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import redis

from tests.kit.tagged import CLUSTERED, ELSEWHERE  # isort: skip - before all others

from fusion.settings import use_settings
from fusion.store.redis_server.binary import ServerBinary, find_server
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.kit import guarded
from tests.kit.clusters import PREFIX, ClusterAsServer, ClusterOfTests
from tests.kit.prepared import remember_texts
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.workers import SharedWorkers

pytest_plugins = ["tests.kit.fixtures", "tests.kit.flaky"]

_GUARDED = {
    "process",
    "relay",
    "scheduler",
    "supervisor",
    "worker",
    "faults",
    "courier",
    "upgrade",
    "budgets",
    "doctor",
    "sidecar",
    "contrib",
}


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control has what it runs in the background ignore ^C, and what tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # setuptools hooks into each start of Python for those who import distutils: 3 ms of the 18 that an empty program takes.
    os.environ["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
    remember_texts()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Twelve thousand tests stay to the end: nothing looks them through for garbage, in each process of the run, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if CLUSTERED else ():
        if why := ELSEWHERE.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.skip(reason=f"not on a cluster: {why}"))


@pytest.fixture(scope="session")
def server_binary() -> ServerBinary:
    """The server under test: FUSION_TEST_REDIS_SERVER, else what Fusion itself would start."""
    named = os.environ.get("FUSION_TEST_REDIS_SERVER")
    return find_server({**os.environ, "FUSION_REDIS_SERVER": named} if named else None)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SharedWorkers:
    """What `shared_workers` gives to tests."""
    return SharedWorkers(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def redis_server(server_binary: ServerBinary, shared: SharedWorkers) -> Iterator[EmbeddedRedis | ClusterAsServer]:
    if CLUSTERED:
        with closing(ClusterOfTests(server_binary.path, replicas=False)) as cluster:
            yield ClusterAsServer(cluster)
            shared.stop()
        return
    # Not pytest's tmp_path: its names are too long for a unix socket.
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    server = guarded.RedisOfTests(home, persistent=False, server=server_binary)
    try:
        server.start()
        yield server
    finally:
        shared.stop()
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the developer's shell, and no Redis but the test's own: without the fixtures below there is none at all."""
    for name in os.environ:
        if name.startswith(("FUSION_", "RQ_", "REDIS_")) and not name.startswith("FUSION_TEST_"):
            monkeypatch.delenv(name)
    home = tmp_path_factory.getbasetemp() / "no-home"
    monkeypatch.setenv("FUSION_HOME", str(home))
    # No bytecode of what a test writes: a module that it changes twice in a second would be taken for the one before.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("FUSION_DEBUGGABLE", "1")  # tests look into what they start, and not all run as root
    monkeypatch.setenv("FUSION_REDIS_URL", f"unix://{home}/none.sock")
    if CLUSTERED:
        monkeypatch.setenv("FUSION_PREFIX", PREFIX)
    previous = use_settings(None)
    path, modules, levels = list(sys.path), set(sys.modules), _log_levels()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    yield
    for number, handler in handlers.items():  # what a test starts would inherit that one is ignored
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    use_settings(previous)
    for name, level in _log_levels().items():
        if level != (before := levels.get(name, logging.NOTSET)):
            logging.getLogger(name or None).setLevel(before)
    # A settings module written for one test must not be another's: the command line imports it in this process. The project's own stay, which
    # in a copy with a known mistake are below the same directory.
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        where = getattr(sys.modules[name], "__file__", None)
        if where and where.startswith(tempfile.gettempdir()) and not where.startswith(f"{ROOT}{os.sep}"):
            del sys.modules[name]


#: Commands of Fusion take these, and leave them ignored at their end.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _log_levels() -> dict[str, int]:
    """The level of the root logger and of Fusion's: a module that a test imports, or a command that it runs, may set them."""
    ours = (name for name in list(logging.root.manager.loggerDict) if name.startswith("fusion"))
    return {name: logging.getLogger(name or None).level for name in ("", *ours)}


@pytest.fixture(scope="session")
def sweeper(redis_server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """An admin's client for all tests: to make one takes as long as the rest of preparing a Redis for a test."""
    client = guarded.admin_client(redis_server.url)
    yield client
    client.close()


@pytest.fixture
def shared_workers(shared: SharedWorkers, redis_url: str) -> SharedWorkers:
    """Workers that run through all tests of the module that name this fixture."""
    return shared


@pytest.fixture
def redis_url(
    request: pytest.FixtureRequest,
    redis_server: EmbeddedRedis,
    sweeper: redis.Redis,
    shared: SharedWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """An empty Redis, unless the test shares workers; also what FUSION_REDIS_URL says, so that processes of the test find it."""
    pid = sweeper.info("server")["process_id"]
    process = redis_server.process
    assert process is not None
    assert pid == process.pid, f"pid {pid} is not the server of this test run: nothing is flushed"
    if not shared.belong_to(str(request.path) if "shared_workers" in request.fixturenames else ""):
        sweeper.config_resetstat()
        sweeper.flushall()  # scripts stay, as on the servers of users: a third of a short test went to loading them again
        guarded.reset_user(sweeper)
    monkeypatch.setenv("FUSION_REDIS_URL", redis_server.url)
    use_settings(None)
    return redis_server.url


@pytest.fixture
def conn(redis_url: str) -> Iterator[redis.Redis]:
    """A client as producers have it, on an empty Redis. Replies are bytes."""
    client = guarded.client(redis_url)
    yield client
    client.close()


@pytest.fixture
def private_redis(server_binary: ServerBinary) -> Iterator[PrivateRedis]:
    """A Redis that the test may pause and kill."""
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    server = PrivateRedis(home, server_binary)
    yield server
    server.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def process_guard(request: pytest.FixtureRequest, shared: SharedWorkers) -> Iterator[None]:
    """After a test that starts processes none of their descendants is left, not even an orphan in another session. Those of workers that tests
    share end with these."""
    if not _GUARDED & set(request.path.relative_to(Path(__file__).parent).parts):
        yield
        return
    if "redis_url" in request.fixturenames:
        # The session's server must not count as the test's own.
        request.getfixturevalue("redis_server")
    if "shared_workers" not in request.fixturenames:
        shared.stop()
    before = {process.pid for process in _descendants()}
    _adopt_orphans(True)
    try:
        yield
        left: list[psutil.Process] = []

        def gone() -> bool:
            found = (process for process in _descendants() if process.pid not in before and not _reaped(process))
            left[:] = [process for process in found if not shared.have(process)]
            return not left

        try:
            eventually(gone, timeout=10.0)
        except AssertionError:
            names = [_line(process) for process in left]
            for process in left:
                _kill(process)
            pytest.fail("processes left behind: " + "; ".join(names))
    finally:
        _adopt_orphans(False)


def _descendants() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _reaped(process: psutil.Process) -> bool:
    """Collect a dead orphan that was handed to us, as init would."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return False
        if process.ppid() == os.getpid():
            os.waitpid(process.pid, os.WNOHANG)
            return True
        return False
    except (psutil.NoSuchProcess, ChildProcessError):
        return True


def _line(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}) {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone)"


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(5)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        pass


def _adopt_orphans(on: bool) -> None:
    """Orphans become children of the test process, where they are seen, instead of init's."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, int(on), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
