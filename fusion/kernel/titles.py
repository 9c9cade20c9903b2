"""Shows in `ps` and `top` what a process does. Requires the package setproctitle (the extra `titles`); without it nothing happens."""

from __future__ import annotations

#: Most characters of a title: it replaces the command line.
_MOST = 200
_set = None
#: True if titles are set.
shown = False


def find() -> None:
    """Look for the package, once, and before a process forks, so that its children have it."""
    global _set, shown
    if _set is None:
        try:
            from setproctitle import setproctitle
        except ImportError:
            return
        _set, shown = setproctitle, True


def show(*words: object) -> None:
    """Set the process title once, at start: for a process whose role never changes."""
    find()
    title(*words)


def title(*words: object) -> None:
    """Show `fusion: worker sms,email`. Names come from outside, so characters that are no printable ASCII are left out."""
    if _set is None:
        return
    text = " ".join(word.decode("ascii", "replace") if isinstance(word, bytes) else str(word) for word in words)[: 4 * _MOST]
    try:
        _set("fusion: " + "".join(char if " " <= char <= "~" else "?" for char in text)[:_MOST])
    except Exception:  # a failure to set the title must not matter
        pass
