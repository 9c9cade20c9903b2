"""The service's own tasks: one module per channel, each with one function from a payload dict to a small receipt dict.

Nothing here speaks to Redis. Where a message goes is decided by environment variables: see `tasks.providers`.
"""
