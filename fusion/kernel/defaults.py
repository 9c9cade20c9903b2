"""Every default of Fusion, in one file. Units are in the name or in the comment; `fusion.settings` makes all of them settable."""

from __future__ import annotations

#: Seconds: about 31 years. No real time is further ahead, and no real duration longer.
FURTHEST = 1e9

#: Seconds within which a signal and a failure belong together, or a signal to a worker and one to its jobs' processes.
SIGNAL_WINDOW = 1.0

#: Key of an object in stored JSON that stands for a value of a type that JSON lacks, see `fusion.kernel.json_types`.
JSON_TAG = "__fusion__"
#: Prefix of every Redis key. RQ's own, so that RQ's tools find the data.
KEY_PREFIX = "rq:"
#: The same for a cluster, with a hash tag: all keys are in one slot. The tag is fixed, so that producers and workers come to the same keys.
CLUSTER_TAG = "fusion"
CLUSTER_PREFIX = f"{KEY_PREFIX}{{{CLUSTER_TAG}}}:"

#: Name of the queue that is used when none is named.
QUEUE = "default"
#: What `--customq all` serves in addition to known queues that are not reserved.
QUEUES = ("sms", "email", "pn", "webhook", "whatsapp", "scheduler")

#: Seconds for which a worker keeps a claimed job without renewing the lease. It renews every third of it.
LEASE = 30.0
#: Seconds between two reaps of one worker (per interval only one in the fleet does work).
REAP_INTERVAL = 5.0
#: Seconds a job may run before `JobTimeoutException` is raised in it.
JOB_TIMEOUT = 180
#: Seconds between the soft timeout and SIGKILL of the job's process group.
TIMEOUT_GRACE = 5.0
#: Seconds that the import of all task modules may take; doubled each time it is exceeded.
IMPORT_TIMEOUT = 60.0
#: The probes answer on this machine only, unless told otherwise.
PROBE_HOST = "127.0.0.1"
#: Percent of memory in use at which a throttled worker takes no more jobs, and at which it takes jobs again.
MEMORY_THROTTLE, MEMORY_RESUME = 90.0, 80.0
GPU_THROTTLE, GPU_RESUME = 85.0, 75.0
SWAP_THROTTLE = 70.0
#: Seconds between two readings of it.
MEMORY_CHECK_INTERVAL = 5.0
#: Seconds a result is kept.
RESULT_TTL = 500
#: Seconds a failed or canceled job is kept.
FAILURE_TTL = 30 * 24 * 3600
CANCELED_TTL = 24 * 3600
#: Jobs kept in a terminal set; those that would expire first make room. Finished and canceled ones: of one queue.
FAILED_MAX = 100_000
FINISHED_MAX = 1_000_000
CANCELED_MAX = 100_000
#: No hash is deleted sooner than this after its last transition, in seconds (ADR 0017).
MIN_TERMINAL_TTL = 60
#: Seconds after which a silent worker's registration expires.
WORKER_TTL = 420
#: Seconds that an idle worker waits for a doorbell before it polls.
IDLE_WAIT = 3.0
#: Seconds that a webhook task waits for the other side.
WEBHOOK_TIMEOUT = 15
#: Seconds between two rounds of cleaning (expired results, dead workers).
MAINTENANCE_INTERVAL = 30.0
#: Seconds the processes of `start` get to finish their jobs at a stop, before those are cut off.
SHUTDOWN_TIMEOUT = 60.0
#: Seconds a process of `start` may be silent before it is killed. Longer than any row of attempts at a Redis that hangs.
HANG_TIMEOUT = 60.0
#: MiB by which a fork server may outgrow what it was when its modules were loaded, before a new one takes over.
FORKSERVER_GROWTH = 128
#: Jobs after which a warm process is replaced.
MAX_JOBS_PER_HORSE = 1000
#: Threads of a process that run jobs at once.
THREADS = 25
#: Coroutines that a process runs at once.
CONCURRENCY = 200
#: Seconds for which jobs may go on beside one for which their process is to be killed.
NEIGHBOUR_GRACE = 30.0
#: Milliseconds of work that may wait in a warm process.
CLAIM_AHEAD = 4
#: Lost leases after which a job is a poison pill and fails.
MAX_LOST = 5
#: Losses of unknown cause after which a job runs alone, so that the next one is its own.
PROBATION = 2
#: Seconds an unknown or not-allowed task is held back before it fails, and between two looks at it.
HOLD_TIMEOUT = 600
HOLD_INTERVAL = 15.0

#: `retryCount` starts here and gives up at the second figure: three retries.
RETRY_COUNT_START = 7
RETRY_COUNT_END = 10
#: Delay of retry n: min(cap, base * 2 ** (n - 1)) * U(1, 1 + jitter), seconds.
RETRY_BASE = 120.0
RETRY_CAP = 3600.0
RETRY_JITTER = 0.25
#: The longest delay a task may ask for (Retry-After, RetryLater), seconds.
RETRY_ASKED_CAP = 24 * 3600.0

#: Bytes.
MAX_PAYLOAD = 512 * 1024
MAX_RESULT = 1024 * 1024
MAX_EXC_INFO = 64 * 1024
#: Depth of nesting of arguments and results.
MAX_DEPTH = 64

#: Events kept in the stream while no sink is configured, and those kept for sinks that are behind.
EVENTS_CAP = 10_000
EVENTS_BACKLOG = 1_000_000
#: Events kept that a sink refused for good, per sink.
PARKED_MAX = 10_000
#: Seconds after which no events are kept for a sink that no relay serves any more.
SINK_ABANDONED = 7 * 24 * 3600
#: Seconds of silence after which others deliver what a relay holds.
RELAY_LEASE = 15.0
#: Bytes of the event file before a new one is begun, and how many old ones are kept.
EVENTS_FILE_BYTES = 50 * 1024 * 1024
EVENTS_FILE_BACKUPS = 5

#: Lines of `Log` that one job may write at once, and per second after that; further ones are only counted.
LOG_BURST = 100
LOG_RATE = 50
#: Lines and bytes of a job's own log, and characters of one of its lines.
LOG_LINES, LOG_BYTES, LOG_LINE = 100, 8 * 1024, 1024
#: Bytes that one run may record for collectors of traces; records and bytes of them that wait in a worker for one collector.
TELEMETRY_JOB, TELEMETRY_WAITING, TELEMETRY_BYTES = 256 * 1024, 2048, 16 * 1024 * 1024

#: Bytes of a job's cursor, and characters of its progress's note.
MAX_CURSOR, MAX_NOTE = 16 * 1024, 200
#: Reports (progress, cursor) that a job's process may send at once, and per second after that; and seconds between two writes for one job.
REPORT_BURST, REPORT_RATE = 10, 1
REPORT_INTERVAL = 1.0
#: Seconds between two `progress` events of one run.
PROGRESS_EVENT_INTERVAL = 5.0

#: Callbacks that one process delivers at a time, to all hosts and to one host.
CALLBACK_SLOTS, CALLBACK_SLOTS_PER_HOST = 16, 2
#: Callbacks that may wait, for their first try or another; further ones are not accepted.
CALLBACKS_MAX = 100_000
#: Ports that callbacks may go to.
CALLBACK_PORTS = (443, 80, 8443)
#: Endpoints recorded as accepting no more callbacks.
GONE_MAX = 10_000
#: Seconds for which the last verdict that a URL received is kept (`doctor --watch --notify`).
VERDICTS_TTL = 90 * 86400

#: Seconds one attempt at Redis may take in a worker.
SOCKET_TIMEOUT = 2.0
#: Jobs, by weight, and bytes of them, sent to Redis in one call of `enqueue_many`: about 10 ms of the server's one thread.
ENQUEUE_CHUNK, ENQUEUE_CHUNK_BYTES = 150, 1024 * 1024
#: Replicas that must acknowledge an enqueue with durability="replicated", and seconds within which they must.
REPLICAS, REPLICAS_TIMEOUT = 1, 1.0

#: Where the HTTP service listens, and how many requests it handles at a time.
SERVER_HOST, SERVER_PORT, SERVER_THREADS = "127.0.0.1", 8080, 8
