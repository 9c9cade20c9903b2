"""The settings of Redis, of workers and of jobs. Each has one `#:` comment, which docs/settings.md shows (`make reference`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusion.kernel import defaults
from fusion.settings import readers
from fusion.settings.flags import RELAY, SCHEDULER, SERVER, START, WORKER, Flag, switch
from fusion.settings.readers import setting as _setting


def default_home(env: Mapping[str, str] | None = None) -> str:
    """Return the directory of the built-in Redis if FUSION_HOME is not set: the user's state directory."""
    env = os.environ if env is None else env
    state = env.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(state):
        state = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "fusion")


#: Executors whose processes run many jobs at once, each with its setting of how many, and the number if none is given.
CROWDED = {"thread": ("threads", defaults.THREADS), "asyncio": ("concurrency", defaults.CONCURRENCY)}


@dataclass(frozen=True, repr=False)
class RedisSettings:
    """The Redis to use, and the options for connecting to it. Host, port and the like are RQ's alternative to redis_url."""

    #: The Redis to use, `redis://`, `rediss://` or `unix://`; `redis+sentinel://` behind Sentinel, `redis+cluster://` for a cluster.
    redis_url: str | None = _setting(None, readers.redis_url, env=("REDIS_URL", "RQ_REDIS_URL"))
    #: A Sentinel, as RQ's dict: INSTANCES, MASTER_NAME, DB, USERNAME, PASSWORD, SOCKET_TIMEOUT, SSL, CONNECTION_KWARGS, SENTINEL_KWARGS.
    sentinel: Mapping[str, Any] | None = _setting(None, readers.mapping)
    #: Other addresses for nodes of a cluster that can't be reached at those they have for each other: `10.0.0.1:6379=host:7001`, one for
    #: each node.
    cluster_nat: Mapping[str, str] | None = _setting(None, readers.addresses)
    #: Host of the Redis, where no URL is given.
    redis_host: str | None = _setting(None, readers.text, env=("REDIS_HOST",))
    #: Its port; 6379 if only the host is given.
    redis_port: int | None = _setting(None, readers.whole(1, 65535), env=("REDIS_PORT",))
    #: Number of its database; 0 by default.
    redis_db: int | None = _setting(None, readers.whole(0), env=("REDIS_DB",))
    #: User to log in as, if the URL names none.
    redis_username: str | None = _setting(None, readers.text, env=("REDIS_USERNAME",))
    #: Password to log in with, if the URL has none.
    redis_password: str | None = _setting(None, readers.text, env=("REDIS_PASSWORD",))
    #: File that holds the password (a mounted secret); read at each connect, so it may be rotated.
    redis_password_file: str | None = _setting(None, readers.path)
    #: Use TLS, if no URL is given.
    redis_ssl: bool = _setting(False, readers.flag, env=("REDIS_SSL",))
    #: File with the certificate authorities to check the server's certificate with.
    redis_ssl_ca_certs: str | None = _setting(None, readers.path, env=("REDIS_SSL_CA_CERTS",))
    #: The same as a PEM text.
    redis_ssl_ca_data: str | None = _setting(None, readers.text, env=("REDIS_SSL_CA_DATA",))
    #: File with this client's certificate.
    redis_ssl_certfile: str | None = _setting(None, readers.path, env=("REDIS_SSL_CERTFILE",))
    #: File with the key of that certificate.
    redis_ssl_keyfile: str | None = _setting(None, readers.path, env=("REDIS_SSL_KEYFILE",))
    #: Whether the server must have a valid certificate.
    redis_ssl_cert_reqs: str = _setting("required", readers.choice("required", "optional", "none"), env=("REDIS_SSL_CERT_REQS",))
    #: Check that the certificate is for the given host.
    redis_ssl_check_hostname: bool = _setting(True, readers.flag, env=("REDIS_SSL_CHECK_HOSTNAME",))
    #: Time limit of one attempt at Redis in a worker; the lease must be long enough for several of them.
    socket_timeout: float = _setting(defaults.SOCKET_TIMEOUT, readers.seconds(0.05, readers.ATTEMPT))
    #: Accept a server that may evict keys, which loses jobs.
    allow_eviction: bool = _setting(False, readers.flag)
    #: Prefix of all keys; RQ's own by default, so that RQ's tools find the data. On a cluster `rq:{fusion}:`, whose hash tag keeps all keys in
    #: one slot.
    prefix: str = _setting(defaults.KEY_PREFIX, readers.prefix)
    #: Directory in which the built-in Redis keeps its data and its socket.
    home: str = _setting(default_home, readers.path, factory=True)


@dataclass(frozen=True, repr=False)
class WorkerSettings:
    """Settings of workers, schedulers and their supervisor."""

    #: Queues of a worker that is given none (`default` if this is not set); `all` means these and every other known one.
    queues: tuple[str, ...] = _setting(defaults.QUEUES, readers.names)
    #: Name of the worker, scheduler or relay. If a live one has it already, `.1`, `.2` ... is appended.
    name: str | None = _setting(
        None,
        readers.matching(r"[A-Za-z0-9_.-]{1,128}", "use 1 to 128 of the characters A-Z a-z 0-9 _ . -"),
        flags=Flag("Its name.", "NAME", of=(WORKER, SCHEDULER, RELAY), short="-n", default="host.pid", own=True),
    )
    #: Jobs that one worker runs at a time.
    slots: int = _setting(1, readers.whole(1, readers.SLOTS), flags=Flag("Jobs that it runs at a time."))
    #: What jobs run in. `process`: a process for each job. `pool`: warm processes that run one job after another. `thread` and `asyncio`:
    #: processes that run many jobs at once, in threads or as coroutines. By default `pool` if `horses` is set, else `process`.
    executor: str | None = _setting(
        None,
        readers.executor,
        flags=Flag(
            "What jobs run in, or those of QUEUE: process, one each; pool, warm ones, one job after another; thread or asyncio, many jobs at "
            "once in one. Repeatable.",
            "[QUEUE=]NAME",
            repeated=True,
            raw=True,
            default="process; with --horses pool",
        ),
    )
    #: What the jobs of some queues run in: `sms=asyncio mail=thread`. `start` runs separate workers for them.
    queue_executors: Mapping[str, str] | None = _setting(None, readers.queue_executors)
    #: Warm processes; in a pool they are the slots. `auto`: one per CPU. By default a pool has one per CPU, thread and asyncio have one.
    horses: int | None = _setting(
        None,
        readers.horses,
        flags=Flag(
            "Warm processes that run one job after another, in place of one process per job. "
            "A task can read the arguments of jobs that wait in its process.",
            "N|auto",
        ),
    )
    #: Threads of one process of the executor thread (25 by default).
    threads: int | None = _setting(
        None, readers.whole(1, 1000), flags=Flag("Jobs that a process of thread runs at once.", default=str(defaults.THREADS))
    )
    #: Jobs that one process of asyncio runs at once, as coroutines, or plain functions in threads (200 by default).
    concurrency: int | None = _setting(
        None,
        readers.whole(1, 10_000),
        flags=Flag("Jobs that a process of asyncio runs at once.", default=str(defaults.CONCURRENCY)),
    )
    #: Time that other jobs in a process get to finish when the process must be killed for one job.
    neighbour_grace: float = _setting(
        defaults.NEIGHBOUR_GRACE,
        readers.seconds(0),
        flags=Flag("How long other jobs may go on in a process that is killed for one job.", "SECONDS"),
    )
    #: Jobs after which a warm process is replaced, for each thread or coroutine that it has; 0 = never.
    max_jobs_per_horse: int = _setting(
        defaults.MAX_JOBS_PER_HORSE,
        readers.whole(0),
        flags=Flag("A warm process ends after N jobs for each thread or coroutine that it has; 0: never."),
    )
    #: Peak memory above which a warm process is replaced.
    max_horse_rss: int | None = _setting(
        None, readers.size, flags=Flag("... or after a job that took more memory at its peak, like 200m.", "SIZE")
    )
    #: Work that may wait in a warm process behind the running job. Reporting to Redis and asking it may take that long too. 0 = none.
    claim_ahead: int = _setting(
        defaults.CLAIM_AHEAD,
        readers.whole(0, 1000),
        unit="milliseconds",
        flags=Flag("Work that may wait in a warm process; 0: none.", "MS"),
    )
    #: Queues, or wildcards, whose jobs get a process of their own even with warm processes.
    isolate_queues: tuple[str, ...] | None = _setting(None, readers.names)
    #: Queues whose key is a LIST of stock RQ's, on a Redis shared with RQ, from which this worker takes jobs too.
    adopt_rq: tuple[str, ...] | None = _setting(
        None,
        readers.names,
        flags=Flag("Run what stock RQ's producers enqueue to QUEUE, too. Repeatable.", "QUEUE", repeated=True),
    )
    #: Order of queues whose best jobs are of one class: `listed` serves the first one named, `round-robin` lets them take turns, `random`
    #: leaves it to chance, `weighted` gives each its share. If it is not set, queues named as arguments are served `listed`.
    order: str = _setting(
        "round-robin",
        readers.choice("listed", "round-robin", "random", "weighted"),
        flags=Flag(
            "Order of queues with jobs of one class: the first named first, in turns, by chance, or by weight.",
            choices=("listed", "round-robin", "random", "weighted"),
            default="listed, if QUEUES names them",
        ),
    )
    #: Weights of queues and wildcards for the order `weighted`; 1 for those that are not named.
    weights: tuple[str, ...] | None = _setting(
        None,
        readers.weights,
        flags=Flag(
            "With --order weighted: QUEUE gets N shares of the jobs of one class. Repeatable.",
            "QUEUE=N",
            name="weight",
            repeated=True,
        ),
    )
    #: Slots kept free for jobs of priority high and above.
    reserve_high: int = _setting(0, readers.whole(0, 1024), flags=Flag("Slots kept free for HIGH jobs."))
    #: Time for which a worker keeps a claimed job without renewing the lease; it renews after every third of that time.
    lease: float = _setting(
        defaults.LEASE,
        readers.seconds(0.1),
        flags=(
            Flag("A worker that is silent for this time loses its jobs.", "SECONDS"),
            Flag("If it is silent for this time, it counts as dead.", "SECONDS", of=(SCHEDULER,)),
            Flag(
                "If it is silent for this time, others deliver what it holds.",
                "SECONDS",
                of=(RELAY,),
                default=f"{defaults.RELAY_LEASE:g}",
            ),
        ),
    )
    #: Time between two checks for expired leases; one worker of the fleet checks.
    reap_interval: float = _setting(
        defaults.REAP_INTERVAL,
        readers.seconds(0.01),
        flags=Flag("Time between two checks for expired leases.", "SECONDS", hidden=True),
    )
    #: Time that an idle worker waits for a doorbell before it polls.
    idle_wait: float = _setting(defaults.IDLE_WAIT, readers.seconds(0.01, readers.ATTEMPT))
    #: Time between two rounds of cleaning; one worker of the fleet cleans.
    maintenance_interval: float = _setting(
        defaults.MAINTENANCE_INTERVAL, readers.seconds(0.01), flags=Flag("Between clean-ups.", "SECONDS")
    )
    #: Time that the import of all task modules may take; doubled each time it is exceeded.
    import_timeout: float = _setting(defaults.IMPORT_TIMEOUT, readers.seconds(0.1))
    #: Jobs after which a worker shuts down warm and its supervisor starts another.
    max_jobs: int | None = _setting(
        None, readers.whole(1), flags=Flag("End after N jobs; `start` then starts a fresh one, as for the next three.")
    )
    #: Time without a job after which a worker shuts down warm.
    max_idle_time: float | None = _setting(
        None, readers.seconds(0.1), flags=Flag("End after this time without a job.", "SECONDS")
    )
    #: Age at which a worker shuts down warm.
    max_age: float | None = _setting(
        None, readers.seconds(0.1), flags=Flag("End after this time; up to a tenth less, so that not all end at once.", "SECONDS")
    )
    #: Memory of a worker and its fork server above which the worker shuts down warm.
    max_memory: int | None = _setting(
        None, readers.whole(1), unit="MiB", flags=Flag("End when it and its fork server, without jobs, use more.", "MIB")
    )
    #: Memory by which a fork server may grow before a new one replaces it.
    forkserver_growth: int = _setting(defaults.FORKSERVER_GROWTH, readers.whole(1), unit="MiB")
    #: Time that the supervisor gives its processes for a warm shutdown.
    shutdown_timeout: float = _setting(
        defaults.SHUTDOWN_TIMEOUT,
        readers.seconds(0),
        flags=Flag("Time that its processes get to finish their jobs at a stop.", "SECONDS", of=(START,), own=True),
    )
    #: Silence after which the supervisor kills a process and starts another.
    hang_timeout: float = _setting(defaults.HANG_TIMEOUT, readers.seconds(2))
    #: Time after which the registration of a silent worker expires.
    worker_ttl: int = _setting(
        defaults.WORKER_TTL,
        readers.seconds(1, whole=True),
        flags=Flag("How long its registration stays after it has died.", "SECONDS"),
    )
    #: Lost leases after which a job is a poison pill and fails.
    max_lost: int = _setting(defaults.MAX_LOST, readers.whole(1))
    #: Time for which a job of an unknown or forbidden task waits for a worker that can run it; then it fails.
    hold_timeout: float = _setting(defaults.HOLD_TIMEOUT, readers.seconds(0))
    #: Limits and rates of queues, set by the next worker that starts: `sms limit=20 rate=100/60s burst=5; email max_wait=5m`
    #: (docs/queues.md). Values that people set at run time hold until the value here changes.
    queue_gates: Mapping[str, Mapping[str, str | int | None]] | None = _setting(None, readers.gates)
    #: Modules whose functions may run: `tasks` allows tasks and everything below it, `*` anything. `tasks` itself may be missing, or fail to
    #: import if a flag names other modules as well.
    tasks: tuple[str, ...] = _setting(
        ("tasks",),
        readers.names,
        flags=(
            Flag("Also run functions of MODULE and below; '*' for any. Repeatable.", "MODULE", repeated=True, default=""),
            Flag(
                "Also take what tasks in MODULE declare by @recurring. Repeatable.",
                "MODULE",
                of=(SCHEDULER,),
                repeated=True,
                default="",
            ),
            Flag(
                "Also let callers enqueue functions of MODULE and below. Repeatable.",
                "MODULE",
                of=(SERVER,),
                repeated=True,
                default="",
            ),
        ),
    )
    #: Let `EmbeddedWorker.start()` start a worker; turn it off for tests, for example. Always off inside workers and their jobs.
    embedded_worker: bool = _setting(True, readers.flag)
    #: Modules that declare cron entries, by `@recurring` or a function `register(scheduler)`; `tasks` may, too.
    schedule: tuple[str, ...] | None = _setting(
        None,
        readers.names,
        flags=Flag("Store the cron entries that MODULE declares. Repeatable.", "MODULE", of=(SCHEDULER, START), repeated=True),
    )
    #: App that owns these cron entries; each app removes only its own.
    app: str = _setting(
        "default",
        readers.matching(r"[A-Za-z0-9_.-]{1,64}", "use 1 to 64 of the characters A-Z a-z 0-9 _ . -"),
        flags=Flag("The app that owns these entries.", "NAME", of=(SCHEDULER, START)),
    )
    #: Version of that app; a higher one removes what it no longer declares.
    app_version: str = _setting(
        "0",
        readers.matching(r"\d{1,15}(\.\d{1,15})*", "use whole numbers joined by dots, like 12 or 1.10.2"),
        flags=Flag(
            "Version of the code, like 1.10.2; a higher one removes entries that it no longer declares.",
            "VERSION",
            default="",
            of=(SCHEDULER, START),
        ),
    )
    #: Modules to import before those of tasks and schedules, in each process that loads these; they allow no tasks.
    setup: tuple[str, ...] | None = _setting(None, readers.names)
    #: Load task modules before forking: `auto`, those that can be; `strict`, all, or the worker does not start; `off`, in each job.
    preload: str = _setting(
        "auto",
        readers.choice("auto", "strict", "off"),
        flags=Flag("Import task modules once, before any job runs.", choices=("auto", "strict", "off"), default=""),
    )
    #: Function, by dotted path, that the fork server calls before each fork (docs/tasks.md).
    before_fork: str | None = _setting(None, readers.dotted)
    #: Function, by dotted path, that each process calls after it is forked.
    after_fork: str | None = _setting(None, readers.dotted)
    #: Port of the health probes, 0 for any free one.
    probe_port: int | None = _setting(
        None,
        readers.whole(0, 65535),
        flags=Flag(
            "Serve /livez, /readyz and /metrics on this port; 0 for any free one.",
            "PORT",
            of=(WORKER, SCHEDULER, RELAY),
            own=True,
        ),
    )
    #: Address at which the probes listen.
    probe_host: str = _setting(
        defaults.PROBE_HOST, readers.host, flags=Flag("At which address.", "HOST", of=(WORKER, SCHEDULER, RELAY), own=True)
    )
    #: What `/metrics` of the probes shows: `basic`, no names of queues and tasks; `full`, these, too (docs/metrics.md).
    probe_metrics: str = _setting(
        "basic",
        readers.choice("basic", "full"),
        flags=Flag("full: /metrics names queues, tasks and classes of errors.", choices=("basic", "full")),
    )
    #: Memory that one job's processes may hold together before they are killed.
    max_job_memory: int | None = _setting(
        None, readers.whole(1), unit="MiB", flags=Flag("Kill a job whose processes hold more than this.", "MIB")
    )
    #: Take no jobs while memory is scarce.
    memory_throttle: bool = _setting(
        False, readers.flag, flags=switch("Take no jobs while memory is scarce (MEMORY_THROTTLE_THRESHOLD ...).")
    )
    #: Memory in use at which a throttled worker takes no more jobs.
    memory_throttle_threshold: float = _setting(defaults.MEMORY_THROTTLE, readers.percent, env=("MEMORY_THROTTLE_THRESHOLD",))
    #: Memory in use at which it takes jobs again.
    memory_resume_threshold: float = _setting(defaults.MEMORY_RESUME, readers.percent, env=("MEMORY_RESUME_THRESHOLD",))
    #: GPU memory in use at which a throttled worker takes no more jobs.
    gpu_throttle_threshold: float = _setting(defaults.GPU_THROTTLE, readers.percent, env=("GPU_THROTTLE_THRESHOLD",))
    #: GPU memory in use at which it takes jobs again.
    gpu_resume_threshold: float = _setting(defaults.GPU_RESUME, readers.percent, env=("GPU_RESUME_THRESHOLD",))
    #: Swap in use at which a throttled worker takes no more jobs.
    swap_threshold: float = _setting(defaults.SWAP_THROTTLE, readers.percent, env=("SWAP_THRESHOLD",))
    #: Time between two readings of memory.
    memory_check_interval: float = _setting(defaults.MEMORY_CHECK_INTERVAL, readers.seconds(0.01), env=("MEMORY_CHECK_INTERVAL",))


@dataclass(frozen=True, repr=False)
class JobSettings:
    """Defaults for jobs that don't set them, and limits of what is kept."""

    #: Time that a job may run; -1 = no limit.
    job_timeout: float = _setting(defaults.JOB_TIMEOUT, readers.seconds(0.001, endless=True))
    #: Time between raising the timeout in a job and killing its processes.
    timeout_grace: float = _setting(defaults.TIMEOUT_GRACE, readers.seconds(0))
    #: Time for which a result is kept; -1 = for ever.
    result_ttl: int = _setting(
        defaults.RESULT_TTL,
        readers.seconds(0, whole=True, endless=True),
        flags=Flag("How long results are kept.", "SECONDS", name="results-ttl"),
    )
    #: Time for which a failed job is kept; -1 = for ever.
    failure_ttl: int = _setting(defaults.FAILURE_TTL, readers.seconds(0, whole=True, endless=True))
    #: Failed jobs that are kept; beyond that, those that would expire first are deleted.
    failed_max: int = _setting(defaults.FAILED_MAX, readers.whole(1))
    #: Finished jobs that are kept per queue.
    finished_max: int = _setting(defaults.FINISHED_MAX, readers.whole(1))
    #: Canceled jobs that are kept per queue; stopped ones have the same limit.
    canceled_max: int = _setting(defaults.CANCELED_MAX, readers.whole(1))
    #: Jobs that may wait in a queue without a limit of its own; one more is refused with QueueFull (docs/queues.md).
    max_queue_length: int | None = _setting(None, readers.whole(1))
    #: Time after which a waiting job expires, if neither the job has a ttl nor its queue a timeout.
    queue_timeout: float | None = _setting(None, readers.seconds(0.001))
    #: What an enqueue waits for: `primary`, nothing more; `replicated`, until replicas have it too (docs/producers.md).
    durability: str = _setting("primary", readers.choice("primary", "replicated"))
    #: How many replicas must acknowledge with `replicated`.
    replicas: int = _setting(defaults.REPLICAS, readers.whole(1))
    #: Time within which they must acknowledge.
    replicas_timeout: float = _setting(defaults.REPLICAS_TIMEOUT, readers.seconds(0.001))
    #: Largest size of a job's arguments, and of its options.
    max_payload: int = _setting(defaults.MAX_PAYLOAD, readers.size)
    #: Largest size of a job's result, and of its meta.
    max_result: int = _setting(defaults.MAX_RESULT, readers.size)
    #: How arguments are stored.
    serializer: str = _setting(
        "json",
        readers.choice("json", "pickle"),
        flags=Flag("pickle: run RQ's jobs too; trust your producers.", short="-S", choices=("json", "pickle"), default=""),
    )
    #: Middleware, by dotted path of its class or an instance, the outermost first: hooks of every enqueue and every job (docs/middleware.md).
    middleware: tuple[str, ...] | None = _setting(None, readers.dotted_paths)
    #: Let workers read pickled jobs; anyone who can write to Redis can then run any code here.
    allow_pickle: bool = _setting(False, readers.flag)
