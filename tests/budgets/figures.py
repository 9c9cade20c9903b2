"""What each step may cost. None is a time: a figure here is the same on a slow machine.

Where a figure is exact, one more is a regression and one less is to be written down here. Where it is a ceiling, the distance to what was
measured is what other servers, allocators and other Pythons take.
"""

from __future__ import annotations

MB = 1024 * 1024

# -- round trips

#: Of an enqueue, of whatever options: one script call.
ENQUEUE = 1
#: Jobs of one `enqueue_many` that go in one call: more would hold up everybody else's claims.
CHUNK = 150
#: Of a job in a busy worker with a process per job: one `turn` commits it and claims the next. The rest is for renewing leases and maintenance.
PER_JOB = 1.05
#: The same with warm processes: outcomes that came meanwhile go in one turn, and jobs wait in the processes.
PER_JOB_POOL = 0.6
#: Of everything else a busy worker does, a second: leases, maintenance, doorbell.
DUTIES_PER_SECOND = 4.0
#: Connections of a worker: for turns, for all other calls, for commands, at the doorbell.
WORKER_CONNECTIONS = 4
#: Connections made for jobs, once the worker runs: each would be three round trips and a descriptor.
NEW_CONNECTIONS = 0
#: At rest, a second. A worker that is alone: `promote` every second, a turn, a BLPOP and a look at the wildcards every 3 s, reap and prune every
#: 5 s, a heartbeat and a sample every 10 s: 2.4 measured over 30 s. A relay of one sink and the courier: 5.3. A scheduler: 1.8. A supervisor: none
#: but its worker's.
REST = {"worker": 3.0, "pool": 3.0, "scheduler": 2.0, "relay": 6.0, "supervisor": 1.0}
#: What falls into a short window by chance, since maintenance come together.
BURST = 8

# -- `redis.call` inside the scripts: what the server's one thread does for a job

#: `turn` that commits this many outcomes and claims as many jobs, per job.
TURN_CALLS = {1: 25.0, 8: 12.375}
#: `enqueue` of this many jobs, per job.
ENQUEUE_CALLS = {1: 12.0, 150: 609 / 150}
#: `extend` of this many leases, in all: 5 and two for each lease.
EXTEND_CALLS = {1: 7, 8: 21}
#: `promote` of this many due jobs, per job. Four are of the call: whether there is anything but jobs, when the next is, whether the queue has
#: fair turns, and that all others learn of it.
PROMOTE_CALLS = {1: 24.0, 80: 657 / 80}
#: Of a worker of eight at rest: scripts and all commands, a second. Measured: 0.64 and 0.98.
IDLE_SCRIPTS, IDLE_COMMANDS = 0.8, 1.2
#: Scripts of the work that an idle fleet does together, a second, where each process is late by up to 25 ms. Measured: 1.6 with 8 processes,
#: 1.7 with 50 and 2.2 with 200. Without the way in which they choose their times: 4, 11 and more.
FLEET_SCRIPTS = 2.5
#: `turn` of an idle worker with one queue, in all.
IDLE_TURN_CALLS = 6
#: `turn` by a name, a job.
NAMED_TURN_CALLS = 25.2
#: What a turn by a wildcard has beyond one by a name, by how many queues have work: it reads the index, enters the queue whose turn it is in the
#: index of leases, and wakes others at the wildcard's bell. With more queues of one class than it looks at, it also finds its place among them.
WILDCARD_CALLS = {1: 4.0, 10: 4.0, 1000: 6.0}
#: Milliseconds of the server's time that the longest call takes, however many queues there are.
SCRIPT_MS = 5.0

# -- bytes in Redis

#: Arguments of this many bytes, of text that hardly compresses: what a queued job (hash and queue entry; events apart) may take of what rq's
#: takes, by MEMORY USAGE and by what the server has allocated. Without arguments we take more: the sorted set's entry has 145 bytes where rq's
#: list has 38, of which the hash makes up 64. At 1,000 rq's compression tells; of text that compresses well it takes less from about 300 on.
OF_RQS = {0: 1.12, 20: 1.0, 100: 1.0, 1000: 1.15}
#: A queued job without arguments: hash, key and queue entry. 553 in Redis 7.0, 529 in Valkey 9.1.
QUEUED = 600
#: A finished job's hash and its entry in `rq:finished:<queue>`; the result is small.
FINISHED = 1100
#: An event in the stream.
EVENT = 130

# -- processes

#: Resident memory of worker, scheduler, relay and supervisor: 36 to 39 MB in Python 3.11, of which redis-py is the most.
RESIDENT = 60 * MB
#: Of the fork server without task modules, over a bare interpreter: every fork copies its page tables. 3.5 measured, of which 0.2 makes each
#: horse 0.15 smaller: what all horses write to lies side by side.
FORK_SERVER_OVER_BARE = 3.8 * MB
#: Of the fork server without task modules, in Python 3.11; later ones are larger by themselves.
FORK_SERVER = 12.4 * MB
#: Memory that a spare horse shares with nobody: 1.2 MB measured, pages written since the fork. A warm one, which has run jobs: 2.7 MB.
HORSE_PRIVATE = 4 * MB
WARM_PRIVATE = 8 * MB
#: Modules of Fusion that a process has loaded once it has done its work, at most: two more than were counted. And megabytes resident over a bare
#: interpreter, at most: a tenth or 1.5 MB above what was measured in Python 3.11, without OpenTelemetry. Of a horse the rest is its fork server's.
LOADED = {
    "producer": (160, 30.0),
    "worker": (166, 32.5),
    "fork server": (36, 6.5),
    "horse": (36, 3.5),
    "fusion info": (162, 30.5),
}
#: Minor page faults of a horse from its fork to its task, with a lean task module: 266 to 300, the most if it has rehearsed a job before.
HORSE_FAULTS = 400
#: Minor page faults of a job, in fork server and horse, as a multiple of those of a bare fork with the same module: 4.3 to 4.45 measured in
#: Python 3.11, 5 where the functions that each horse runs are scattered over all pages.
FAULTS_OF_BARE = 4.7
#: The same of a job that fails: 6.1 to 6.2 measured in Python 3.11 and 14.2 where it loads the module `traceback` for the text of its error.
FAILED_FAULTS_OF_BARE = 6.6
#: How many more with `requests` loaded: 35 to 60 measured, 140 if the hooks of threading, logging and random ran.
HORSE_FAULTS_OF_REQUESTS = 105
#: Descriptors. A worker: the standard three, epoll, a wake-up pipe, three connections and one more once a turn was taken while jobs ran, the
#: fork server's socket, and one for each horse.
DESCRIPTORS = {"worker": 16, "pool": 20, "scheduler": 12, "relay": 20, "supervisor": 12}
FORK_SERVER_DESCRIPTORS = 10
HORSE_DESCRIPTORS = 6
#: Seconds of CPU time, user and system, that `--help` takes: what completion in a shell waits for.
HELP_CPU = 0.150
