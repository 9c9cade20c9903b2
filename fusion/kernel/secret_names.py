"""Names whose values are secrets."""

from __future__ import annotations

import re

#: Shown in place of a secret.
MASK = "***"

#: Parts that make a key secret wherever they are in it, ignoring separators.
_ANYWHERE = (
    "passw passphrase secret token apikey accesskey privatekey signingkey encryptionkey authorization authentication cookie session "
    "credential signature bearer"
).split()
#: Words that make a key secret alone or at its end: `pin` also begins `pinned`, and `otp` is in `footprint`.
_WORDS = frozenset("pass pwd auth oauth jwt otp totp pin puk tan code cvv cvc csc mfa salt sid sig hmac ssn".split())
_ENDS = ("code", "pwd", "otp", "pin", "auth", "cvv", "cvc", "pass")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words before `code` that make it public, as in `status_code`, `errCode`, `zipcode`: their values are well known.
PUBLIC_CODES = frozenset(
    "status exit return ret error err reason result http country currency language lang locale zip postal post bar byte char".split()
)
#: Words about text that end in it, as in `utf8_decode`, `urlencode`, `unicode`.
_PLAIN_WORD = re.compile(
    rf"(?:url|uri|html|json|utf|idna|hex|b|re)?(?:de|en)code|(?:uni|puny|re|trans|hard|geo|op|{'|'.join(sorted(PUBLIC_CODES))})code"
)
#: Separators between two words of one name.
_JOINTS = ("", "_", "-")


def is_secret(key: str) -> bool:
    """Return True if a key's name (`password`, `apiKey`, `pin` ...) makes its value a secret."""
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
    before, end = "", 0
    for found in _WORD.finditer(key):
        word = found[0].lower()
        public = word == "code" and before in PUBLIC_CODES and key[end : found.start()] in _JOINTS
        if not public and (word in _WORDS or word.endswith(_ENDS)) and not _PLAIN_WORD.fullmatch(word):
            return True
        before, end = word, found.end()
    return False
