"""Every default of Fusion, in one file. Units are in the name or in the comment; `fusion.settings` makes all of them settable."""

from __future__ import annotations

#: Prefix of every Redis key. RQ's own, so that its tools find what they know.
KEY_PREFIX = "rq:"

#: Name of the queue that is used when none is named.
QUEUE = "default"
#: What `--customq all` serves besides known queues that are not reserved.
QUEUES = ("sms", "email", "pn", "webhook", "whatsapp", "scheduler")

#: Seconds a claimed job stays its worker's without a renewal. Renewed every third of it.
LEASE = 30.0
#: Seconds between two reaps of one worker (only one per fleet and interval does work).
REAP_INTERVAL = 5.0
#: Seconds a job may run before `JobTimeoutException` is raised in it.
JOB_TIMEOUT = 180
#: Seconds between the soft timeout and SIGKILL of the job's process group.
TIMEOUT_GRACE = 5.0
#: Seconds the import of all task modules may take; doubled after each time it was cut off.
IMPORT_TIMEOUT = 60.0
#: Seconds a result is kept.
RESULT_TTL = 500
#: Seconds a failed or canceled job is kept.
FAILURE_TTL = 30 * 24 * 3600
CANCELED_TTL = 24 * 3600
#: No hash goes sooner than this after its last transition, in seconds (DESIGN R11).
MIN_TERMINAL_TTL = 60
#: Seconds after which a silent worker's registration expires.
WORKER_TTL = 420
#: Seconds an idle worker waits for a doorbell before it looks by itself.
IDLE_WAIT = 3.0
#: Seconds a webhook task gives the other side.
WEBHOOK_TIMEOUT = 15
#: Seconds between two rounds of cleaning (expired results, dead workers).
MAINTENANCE_INTERVAL = 30.0
#: Lost leases after which a job is a poison pill and fails.
MAX_LOST = 5
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

#: Bytes.
MAX_PAYLOAD = 512 * 1024
MAX_RESULT = 1024 * 1024
MAX_EXC_INFO = 64 * 1024
#: Depth of nesting of arguments and results.
MAX_DEPTH = 64

#: Events kept in the stream while no sink is configured.
EVENTS_CAP = 10_000

#: Seconds one attempt at Redis may take in a worker.
SOCKET_TIMEOUT = 2.0
#: Jobs sent to Redis in one call of `enqueue_many`.
ENQUEUE_CHUNK = 500
