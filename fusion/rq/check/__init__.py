"""`python -m fusion.rq.check PATH` reads a project that uses RQ, and says what works with `fusion.rq`, what to change, and what is missing.

It imports nothing of the project.
"""
