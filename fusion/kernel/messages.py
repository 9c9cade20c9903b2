"""Masks secrets in messages, reasons and tracebacks. docs/secrets.md has the rules; `masked_text` limits the length and calls this.

Parts that stay unmasked (types, places in a source, HTTP statuses, values in Fusion's own sentences) are first replaced by a character of a
private plane each, and put back at the end. Every step is linear in the text.
"""

from __future__ import annotations

import re

from fusion.kernel.secret_names import MASK, PUBLIC_CODES, is_secret
from fusion.kernel.sentences import SLOTS, TEMPLATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: A code word masks digits if at most this many words are between them.
_REACH = 3
_FAR = 1 << 40
#: The characters that stand for unmasked parts: the first one marks a place where something was cut out.
_CUT, _FIRST, _LAST = "\U000f0000", 0xF0001, 0xFFFFD
_PRIVATE = re.compile("[\U000f0000-\U000fffff]")

#: A digit: decimal digits of any alphabet, other digits (raised, lowered, circled), and Chinese ones.
_D = (
    r"[\d²³¹፩-፱᧚⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒\U00010a40-\U00010a43\U00010e60-\U00010e68\U00011052-\U0001105a\U0001f100-\U0001f10a"
    r"〇零一二三四五六七八九]"
)
#: A character between two digits of one figure: neither letter nor digit, or an escape that `repr` wrote.
_S = r"(?:\\(?:[nrtvf]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})|[\W_])"
_DIGIT = re.compile(_D)
_RUN = re.compile(rf"{_D}(?:{_S}{{0,3}}{_D})*")
_LEAST = 4
#: The end of a figure. A status may have one or two digits after it: `HTTP 503; 3 tries` is no code, `HTTP 482 913` may be one.
_END = rf"(?![^\W_])(?!{_S}{{0,3}}\d)"
_END_STATUS = rf"(?![^\W_])(?!(?:{_S}{{0,3}}\d){{3}})(?!(?![;,:]\s| \(){_S}{{1,3}}\d)"
_BEGIN = r"(?<![^\W_])"

_CODE_WORDS = frozenset(
    "code codes otp otps totp pin pins pincode pincodes mpin puk tan tans cvv cvvs cvc cvcs csc cvn password passwords passwd pwd passcode "
    "passcodes passphrase passwort kennwort mfa код пароль codigo código codice contraseña senha kode kod kód".split()
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ESCAPE = re.compile(r"\\[nrtvf]")
_SPACED = re.compile(r"\S+")
_LETTERS = re.compile(r"[^\W\d_]+")
_IDENTIFIER = re.compile(r"\w+")
_ALNUM = re.compile(r"[^\W_]+")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}://)([^\s\"'<>]*)")
_QUERY = re.compile(r"([^=&;]*)=[^&;]*")
_BEARER = re.compile(r"\b([Bb]earer|BEARER|[Bb]asic(?=\s+\S*[A-Z\d=]))\s+\S{6,}")
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|ghp|gho|ghs|ghu|ghr|github_pat|xox[a-z]|glpat|whsec)[-_]|eyJ|AKIA|ASIA|AIza)[A-Za-z0-9_.+/=-]{8,}"
)
_OPAQUE = re.compile(r"[A-Za-z0-9_+/=~-]{16,}")
#: Identifiers and paths of lower-case words: a random token never looks like one.
_WORDS = re.compile(r"[~/_]{0,2}[a-z]{2,}\d{0,2}(?:[/_]+(?:[a-z]+\d{0,2}|\d{1,2}))*[/_]?")

_NAMED = re.compile(r"([A-Za-z_][\w.-]{1,63})\\?[\"']?\]?\s{0,3}(?:[=!:]=|[=-]>|[=:])\s{0,3}")
_SCHEME = r"(?:(?:bearer|basic|digest|negotiate|token|apikey)\s+)?"
_LITERAL = r"[bfruBFRU]{0,2}(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?)"
_NAMED_VALUE = re.compile(
    rf"{_SCHEME}(?:{_LITERAL}|\\\"(?:[^\\]|\\(?!\"))*(?:\\\")?|\\'(?:[^\\]|\\(?!'))*(?:\\')?|[^\s,;&}}\])]+)",
    re.IGNORECASE | re.DOTALL,
)
_IS_LITERAL = re.compile(rf"{_LITERAL}|\d")
_BRACKETS = re.compile(r"[][(){}]")

#: In a source line: a name that a value is bound to, compared with or passed to; a literal.
_SOURCE = re.compile(
    rf"(?P<literal>{_LITERAL}|(?<![\w.])\d[\w.]*)|(?P<name>[^\W\d][\w.]{{0,200}})"
    r"(?P<op>(?:\s{0,3}(?:[-+*/%|&^:=!]?=(?!=)|==|[!:]=|\(|:)|\s{1,3}(?:in|is|not)\b)?)",
    re.DOTALL,
)
_SUBSCRIPT = re.compile(r"\s{0,3}\]?\s{0,3}(?::(?!=)|[=!]=|=|\)?\s{1,3}(?:in|is)\b)")
_AFTER = re.compile(r"\s{0,3}(?:[=!]=|in\b|is\b)\s{0,3}(?:not\s)?\s{0,3}([^\W\d][\w.]{0,200})")


def mask_message(text: str, *, cut: bool = False, source: bool = False) -> str:
    """Return the text masked. `cut`: it was cut at the end, where a code word may have stood. `source`: it is a line of a program."""
    shield = _Shield()
    text = shield.cover(text) + (f" {_CUT}" if cut else "")
    if "://" in text:
        text = _URL.sub(_mask_url, text)
    if source:
        text = _mask_literals(text)
    if "=" in text or ":" in text or ">" in text:
        text = _mask_named(text, source)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _PREFIXED.sub(MASK, text)
    text = _OPAQUE.sub(_mask_opaque, text)
    return shield.uncover(mask_digits(text))


# -- what stays


class _Rule:
    """A pattern of parts that stay, compiled when a text has one of its `hints`: most texts have none."""

    def __init__(self, hints: tuple[str, ...], pattern: str) -> None:
        self._hints, self._pattern = hints, pattern
        self._compiled: re.Pattern[str] | None = None

    def sub(self, keep: Callable[[re.Match[str]], str], text: str) -> str:
        """Replace each part that stays by what `keep` returns."""
        if not any(hint in text for hint in self._hints):
            return text
        if self._compiled is None:
            self._compiled = re.compile(self._pattern)
        return self._compiled.sub(keep, text)


def _own(template: str) -> _Rule:
    """Return a rule for a sentence of Fusion's own, with values of the kinds that it names."""
    pieces = re.split(r"\{(\w+)\}", template)
    words = [re.escape(piece) if nth % 2 == 0 else f"(?:{SLOTS[piece.partition('_')[0]]})" for nth, piece in enumerate(pieces)]
    begin = r"(?<!\w)" if not pieces[0] else ""
    end = r"(?!\w)" if not pieces[-1] else ""  # the value is whole: no part of a longer one may stay
    return _Rule((max(pieces[::2], key=len),), begin + "".join(words) + end)


_CUT_OUT = _Rule((" bytes cut]... ",), r" \.\.\.\[\d{1,12} bytes cut\]\.\.\. ")
_COUNT = rf" {{0,2}}[#:=]? {{0,2}}\d{{1,3}}{_END}"
_PYTHON = r"(?:[^\W\d]\w{0,100}\.)"
_SUFFIX = ("Error", "Exception", "Warning", "Exit", "Interrupt", "Timeout")
_FREE = (
    _Rule(
        ('File "',),
        r"File \"(?:[^\"\n]{1,300}\.py[cowx]?|<[a-z ]{1,40}>)\", line \d{1,7}(?!\d)(?:, in (?:[^\W\d]\w{0,200}|<\w{1,40}>))?",
    ),
    *map(_own, TEMPLATES),
    _Rule(
        ("HTTP",),
        rf"{_BEGIN}HTTP(?:/\d(?:\.\d)?)?(?:[ _-](?:[Ee]rror|[Ss]tatus))?(?:[ _-]?[Cc]ode)?{_S}{{0,4}}[1-5]\d\d{_END_STATUS}",
    ),
    _Rule(("tatus",), rf"{_BEGIN}[Ss]tatus(?:[ _-]?[Cc]ode)?{_S}{{0,4}}[1-5]\d\d{_END_STATUS}"),
    _Rule(
        ("exit", "return"),
        rf"{_BEGIN}(?:(?:exit(?:ed)?(?: with)?|return)[ _-]?(?:code|status)|exited with){_S}{{0,4}}(?:25[0-5]|2[0-4]\d|1?\d?\d){_END_STATUS}",
    ),
    _Rule(("ine", "ttempt", "rgument"), rf"{_BEGIN}(?:[Ll]ines?|[Aa]ttempts?|[Aa]rguments?){_COUNT}"),
    _Rule((" argument",), r"missing \d{1,3} required (?:positional |keyword-only )?arguments?(?!\w)"),
    _Rule((" argument",), r"takes (?:from \d{1,3} to )?\d{1,3} positional arguments?(?: but \d{1,3} (?:was|were) given)?(?!\w)"),
    _Rule((".py:",), r"(?<![\w./-])[\w./-]{1,250}\.py:\d{1,5}(?::\d{1,3})?(?!\w|:\d)"),
)
_PLACE = _Rule((":",), r"(?<![\w.:])([^\W\d][\w.]{0,200}):([^\W\d][\w.<>]{0,200}):\d{1,5}(?![\w:])")
_TYPE = _Rule(
    (*_SUFFIX, "."),
    rf"(?<![\w.])(?:{_PYTHON}{{0,10}}[^\W\d]\w{{0,100}}(?:{'|'.join(_SUFFIX)})(?![\w.]\w)|\A{_PYTHON}{{1,10}}[A-Z]\w{{0,100}}(?=: |\Z))",
)


class _Shield:
    """Takes the parts that stay out of a text, and puts them back."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._cuts: list[str] = []

    def cover(self, text: str) -> str:
        """Put a character in place of each part that stays."""
        if not text.isascii():
            text = _PRIVATE.sub("\ufffd", text)
        text = _TYPE.sub(self._keep_type, text)
        if not _DIGIT.search(text):
            return text
        for rule in _FREE:
            text = rule.sub(self._keep, text)
        text = _CUT_OUT.sub(self._cut, _PLACE.sub(self._keep_place, text))
        return _without_halves(text) if self._cuts else text

    def uncover(self, text: str) -> str:
        """Put back the parts that stay."""
        text = text.removesuffix(f" {_CUT}")
        self._again = iter(self._cuts)
        return _PRIVATE.sub(self._put_back, text) if self._kept or self._cuts else text

    def _keep(self, found: re.Match[str]) -> str:
        if len(self._kept) > _LAST - _FIRST:
            return found[0]
        self._kept.append(found[0])
        return chr(_FIRST + len(self._kept) - 1)

    def _keep_type(self, found: re.Match[str]) -> str:
        return found[0] if len(_DIGIT.findall(found[0])) >= _LEAST else self._keep(found)

    def _keep_place(self, found: re.Match[str]) -> str:
        return found[0] if {found[1].lower(), found[2].lower()} & _CODE_WORDS else self._keep(found)

    def _cut(self, found: re.Match[str]) -> str:
        self._cuts.append(found[0])
        return _CUT

    def _put_back(self, found: re.Match[str]) -> str:
        if found[0] == _CUT:
            return next(self._again, "")
        # it may contain another part that stays
        return _PRIVATE.sub(self._put_back, self._kept[ord(found[0]) - _FIRST])


def _without_halves(text: str) -> str:
    """Remove the halves of a word whose middle was cut out: they could not be recognized as a secret."""
    parts = text.split(_CUT)
    for nth in range(len(parts) - 1):
        before, after = parts[nth].rstrip(), parts[nth + 1].lstrip()
        if before:
            parts[nth] = before[: len(before) - len(before.rsplit(None, 1)[-1])] + MASK
        if after:
            parts[nth + 1] = MASK + after[len(after.split(None, 1)[0]) :]
    return _CUT.join(parts)


# -- by name


def _mask_url(found: re.Match[str]) -> str:
    before, hash_sign, _ = found[2].partition("#")
    before, question, query = before.partition("?")
    authority, slash, path = before.partition("/")
    userinfo, at, host = authority.rpartition("@")
    _, colon, port = host.rpartition(":")
    if "@" in path or (colon and not port.isdigit() and not host.endswith("]")):
        return f"{found[1]}{MASK}"  # a password with a slash or a space in it: the host's beginning can't be found
    if query:
        query = _QUERY.sub(rf"\1={MASK}", query) if "=" in query else MASK
    return f"{found[1]}{MASK if userinfo else ''}{at}{host}{slash}{path}{question}{query}{hash_sign}{MASK if hash_sign else ''}"


def _mask_named(text: str, literals: bool) -> str:
    """Mask `password=...`, `"api_key": "..."`, `Authorization: Bearer ...`, `codes: [...]`. `literals`: mask only literals."""
    parts: list[str] = []
    at = 0
    while named := _NAMED.search(text, at):
        parts.append(text[at : named.end()])
        at = named.end()
        if literals and not _IS_LITERAL.match(text, at):
            continue
        if is_secret(named[1]) and (end := _value_end(text, at)) > at:
            parts.append(MASK)
            at = end
    return "".join(parts) + text[at:]


def _value_end(text: str, at: int) -> int:
    if text[at : at + 1] in ("[", "(", "{"):
        depth = 0
        for bracket in _BRACKETS.finditer(text, at):
            depth += 1 if bracket[0] in "[({" else -1
            if depth == 0:
                return bracket.end()
        return len(text)
    value = _NAMED_VALUE.match(text, at)
    return value.end() if value else at


def _mask_literals(line: str) -> str:
    """Mask literals in a source line that are bound to, compared with or passed to a secret name."""
    parts: list[str] = []
    secret, at, before = False, 0, ""
    for found in _SOURCE.finditer(line):
        literal = found["literal"]
        if literal is None:
            if op := found["op"].strip():
                # for a call's value, and one with a type, the name is before it
                secret = is_secret(found["name"]) or (secret and (op == "(" or (op == "=" and before == ":")))
                before = op
            continue
        parts.append(line[at : found.start()])
        at = found.end()
        compared = _AFTER.match(line, at)
        hidden = secret or (compared is not None and is_secret(compared[1]))
        if literal[-1] in "\"'" and _SUBSCRIPT.match(line, at):  # a key
            secret, before = is_secret(literal.strip("bfruBFRU\"'")), ""
            hidden = hidden and compared is not None
        parts.append(MASK if hidden else literal)
    return "".join(parts) + line[at:]


def _mask_opaque(found: re.Match[str]) -> str:
    word = found[0]
    if not any(c.isdigit() for c in word) or not any(c.isalpha() for c in word):
        return word
    return word if _WORDS.fullmatch(word) and sum(map(str.isdigit, word)) < _LEAST else MASK


# -- digits


def mask_digits(text: str) -> str:
    """Mask four or more adjacent digits, and any digits near a code word."""
    if not _DIGIT.search(text):
        return text
    near = _near_codes(text)
    parts, at = [], 0
    for start, end in near:
        parts += [text[at:start], _ALNUM.sub(_mask_mixed, text[start:end])]
        at = end
    text = "".join(parts) + text[at:]
    place = 0

    def masked(run: re.Match[str]) -> str:
        nonlocal place
        while place < len(near) and near[place][1] <= run.start():
            place += 1
        hidden = place < len(near) and near[place][0] < run.end()
        return _DIGIT.sub("*", run[0]) if hidden or len(_DIGIT.findall(run[0])) >= _LEAST else run[0]

    return _RUN.sub(masked, text)


def _near_codes(text: str) -> list[tuple[int, int]]:
    """Return the places of words with digits that are near a code word, in order."""
    plain = _ESCAPE.sub("  ", text)
    words = [found for found in _SPACED.finditer(plain) if _ALNUM.search(found[0]) or _CUT in found[0]]
    codes = [_CUT in word[0] or _has_code_word(word[0]) for word in words]
    if True not in codes:
        return []
    found, last, following = [], -_FAR, [_FAR] * len(words)
    for nth in range(len(words) - 1, -1, -1):
        following[nth] = nth if codes[nth] else following[nth + 1] if nth + 1 < len(words) else _FAR
    for nth, word in enumerate(words):
        last = nth if codes[nth] else last
        if min(nth - last, following[nth] - nth) <= _REACH + 1 and _DIGIT.search(word[0]):
            found.append(word.span())
    return found


def _mask_mixed(found: re.Match[str]) -> str:
    """Mask a word of letters and digits: `A7K9` may be a code just as 4829 may. It keeps its length."""
    word = found[0]
    digits = len(_DIGIT.findall(word))
    letters = _LETTERS.findall(word)
    if not digits or digits == len(word) or any(map(_is_code_word, letters)):
        return word
    return "*" * len(word)


def _has_code_word(text: str) -> bool:
    """Return True if a part of the name is a code word. False for `status_code`, which is a name of its own."""
    for name in _IDENTIFIER.findall(text):
        before = ""
        for letters in _LETTERS.findall(name):
            for part in _parts(letters):
                if part in _CODE_WORDS and not (part == "code" and before in PUBLIC_CODES):
                    return True
                before = part
    return False


def _is_code_word(letters: str) -> bool:
    return any(part in _CODE_WORDS for part in _parts(letters))


def _parts(letters: str) -> list[str]:
    """Return the words of a name in lower case; a name of mixed case has several."""
    low = letters.lower()
    if low in _CODE_WORDS or letters.islower() or letters.isupper():
        return [low]
    return [part.lower() for part in _PART.findall(letters)]
