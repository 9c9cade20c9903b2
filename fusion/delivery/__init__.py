"""Callbacks over HTTP: a POST that is signed, bounded in time and size, and can't be turned against the network it comes from.

Nothing here knows Redis, or a job's state: `message` makes the body, `signing` its signature, `post` sends it once, and `schedule.verdict`
tells what follows.
"""
