"""Callbacks over HTTP: a signed POST, limited in time and size, that can't be used to attack the internal network.

Nothing here uses Redis or a job's state: `message` makes the body, `signing` its signature, `post` sends it once, and `schedule.verdict`
decides what follows.
"""
