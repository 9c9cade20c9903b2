"""What `ps` and `top` show of a process: what it does. By the package setproctitle, if it is there (the extra `titles`); else nothing happens."""

from __future__ import annotations

#: Characters of a title: it takes the place of the command line.
_MOST = 200
_set = None


def find() -> None:
    """Look for the package, once, and before a process forks: its children have it then."""
    global _set
    if _set is None:
        try:
            from setproctitle import setproctitle
        except ImportError:
            return
        _set = setproctitle


def show(*words: object) -> None:
    """`find` and `title`, of a process that is what it is from its start to its end."""
    find()
    title(*words)


def title(*words: object) -> None:
    """Show `fusion: worker sms,email`. Names come from strangers: what is no printable ASCII is left out."""
    if _set is None:
        return
    text = " ".join(word.decode("ascii", "replace") if isinstance(word, bytes) else str(word) for word in words)[: 4 * _MOST]
    try:
        _set("fusion: " + "".join(char if " " <= char <= "~" else "?" for char in text)[:_MOST])
    except Exception:  # nothing fails for the sake of its looks
        pass
