"""What an ACL user of Redis must be allowed for Fusion to work; docs/operations.md, "Least privilege"."""

from __future__ import annotations

from fusion import defaults

#: Rules for `ACL SETUSER`, to follow the user's name and password. One line, in this order: later rules override earlier ones.
RULES = (
    "resetkeys resetchannels -@all ~{prefix}* &{prefix}* +@read +@write -@dangerous"
    " +eval +evalsha +time +info +ping +select +subscribe +publish"
)


def acl_rules(prefix: str = defaults.KEY_PREFIX) -> str:
    """The least that producers, workers and the command line need for keys under `prefix`."""
    return RULES.format(prefix=prefix)
