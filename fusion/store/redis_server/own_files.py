"""Files, directories and sockets that must belong to this user: nobody else may read, replace or redirect them."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import stat
import struct
import sys

from fusion.exceptions import ConfigurationError


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a regular file, created if necessary, and return its descriptor. OSError for anything else, and for links: one may lead to any
    file of ours."""
    # O_NONBLOCK: a pipe of that name must not block us until somebody reads it.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return fd


def write_own(path: str | os.PathLike[str], text: str, mode: int = 0o600) -> None:
    """Write a regular file; it is emptied only once it is known to be one. OSError as `open_own`."""
    with open(open_own(path, os.O_WRONLY | os.O_CREAT, mode), "w") as file:
        file.truncate()
        file.write(text)


def read_own(path: str | os.PathLike[str]) -> str:
    """Read a regular file. OSError as `open_own`."""
    with open(open_own(path, os.O_RDONLY)) as file:
        return file.read()


def reason(error: OSError) -> str:
    """Word an OSError for people. The kernel's text for a link is no help: "Too many levels of symbolic links"."""
    return "it is a link; remove it" if error.errno == errno.ELOOP else error.strerror or str(error)


def check_home(home: str | os.PathLike[str]) -> None:
    """Refuse a state directory that others can change, with a ConfigurationError that names the remedy. A missing directory is accepted."""
    try:
        link, found = os.lstat(home), os.stat(home)
    except OSError:
        return
    ours = os.geteuid()
    # A link may also belong to root, who can do anyway what a link could do.
    for owner in {found.st_uid, link.st_uid if link.st_uid and stat.S_ISLNK(link.st_mode) else ours} - {ours}:
        raise ConfigurationError(
            f"{os.fspath(home)} belongs to user {owner}, and this process runs as user {ours}: a Redis in it would be that user's. "
            f"Run as user {owner}, or set FUSION_HOME to a directory of your own, or name the Redis that you mean (FUSION_REDIS_URL)",
            code="FUS-213",
        )
    if found.st_mode & 0o022:
        raise ConfigurationError(
            f"others may write to {os.fspath(home)} (mode {stat.S_IMODE(found.st_mode):o}), so that what is in it may be theirs: "
            f"chmod go-w {shlex.quote(os.fspath(home))}, or set FUSION_HOME to a directory of your own",
            code="FUS-213",
        )


def check_socket(path: str, peer: socket.socket | None = None) -> None:
    """Refuse a socket file, or a process listening there, that does not belong to this user. Raises ConfigurationError."""
    ours = os.geteuid()
    found = os.lstat(path)
    owners = {found.st_uid}
    if peer is not None and sys.platform == "linux":
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        owners.add(uid)
    if owners != {ours} or stat.S_ISLNK(found.st_mode):
        what = f"a socket of user {min(owners - {ours})}, not" if owners != {ours} else "a link, no socket"
        raise ConfigurationError(
            f"{path} is {what} of user {ours}, as whom this process runs: remove it, or set FUSION_HOME to another directory, "
            "or name the Redis that you mean (FUSION_REDIS_URL)",
            code="FUS-213",
        )


def close_to_others(path: str | os.PathLike[str]) -> None:
    """Remove other users' permissions on a file or directory of ours. Does nothing for a link."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if found.st_mode & 0o077 and found.st_uid == os.geteuid() and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~0o077)
