"""Names that say that what they stand for is a secret."""

from __future__ import annotations

import re

#: Shown in place of a secret.
MASK = "***"

#: Parts of a key that make it secret wherever they stand in it, separators left out.
_ANYWHERE = (
    "passw passphrase secret token apikey accesskey privatekey signingkey encryptionkey authorization authentication cookie session "
    "credential signature bearer"
).split()
#: Words that make a key secret on their own and at the end of one: `pin` also begins `pinned`, and `otp` is in `footprint`.
_WORDS = frozenset("pass pwd auth oauth jwt otp totp pin puk tan code cvv cvc csc mfa salt sid sig hmac ssn".split())
_ENDS = ("code", "pwd", "otp", "pin", "auth", "cvv", "cvc", "pass")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret(key: str) -> bool:
    """True if a key's name (`password`, `apiKey`, `pin` ...) makes its value a secret."""
    key = key[:256]
    known = _known.get(key)
    if known is None:
        if len(_known) >= 2000:
            _known.clear()
        known = _known[key] = _says_secret(key)
    return known


_known: dict[str, bool] = {}


def _says_secret(key: str) -> bool:
    squashed = "".join(c for c in key.lower() if c.isalpha())
    if squashed in _WORDS or any(part in squashed for part in _ANYWHERE):
        return True
    words = [word.lower() for word in _WORD.findall(key)]
    return any(word in _WORDS or word.endswith(_ENDS) for word in words)
