"""What can go wrong. Each message says what happened, what it means for the data, and what to do."""

from __future__ import annotations

import errno as _errno


class Error(Exception):
    """Anything that Forebay says.

    Attributes:
        code: a word for programs, such as ``no-space``; its meaning never changes.
        retryable: whether the same call may succeed later.
    """

    code: str = "error"
    retryable: bool = False

    def __str__(self) -> str:
        # Those that are an OSError would put the number of the system before it.
        return str(self.args[-1]) if self.args else ""


class ServerError(Error):
    """The server refused, broke the protocol, or is another one than before."""


class NobodyListens(Error, ConnectionRefusedError):
    """No server runs at the address."""


class NoAnswer(Error, TimeoutError):
    """No answer before the deadline: what was not acknowledged may or may not be stored."""


class ReadError(Error):
    """A fragment could not be read; ``code`` is ``read-not-found``, ``read-deleted``, ``read-unavailable`` or ``read-lost``."""


class FileError(Error, OSError):
    """Something about a file or a name; ``errno`` is what a local file system would say."""


class NotFound(FileError, FileNotFoundError):
    """Nothing has this name, or the file was removed."""


class Exists(FileError, FileExistsError):
    """The name is taken."""


class NotDirectory(FileError, NotADirectoryError):
    """Something else stands where a directory must."""


class IsDirectory(FileError, IsADirectoryError):
    """A directory stands where none may."""


class Sealed(FileError, PermissionError):
    """The file does not change any more. Write another one, and rename it over this one."""


class NoSpace(FileError):
    """The store, or the memory for its index, is full (``ENOSPC``). What a writer had acknowledged is safe."""


class Conflict(FileError):
    """Another writer wrote the same bytes while both had the file open (``EBUSY``). Nothing is mixed."""


class NoSums(FileError):
    """A checksum was asked of a file that is not sealed (``EINVAL``), or of which it is not known yet (``EAGAIN``)."""


# By code: the class, and of a FileError the number of the system.
_CLASSES: dict[str, tuple[type[Error], int | None]] = {
    "address": (ServerError, None),
    "nobody-listens": (NobodyListens, _errno.ECONNREFUSED),
    "deadline": (NoAnswer, _errno.ETIMEDOUT),
    "puts-unanswered": (NoAnswer, _errno.ETIMEDOUT),
    "unknown": (NoAnswer, _errno.ETIMEDOUT),
    "not-found": (NotFound, _errno.ENOENT),
    "removed": (NotFound, _errno.ENOENT),
    "exists": (Exists, _errno.EEXIST),
    "not-directory": (NotDirectory, _errno.ENOTDIR),
    "is-directory": (IsDirectory, _errno.EISDIR),
    "not-file": (FileError, _errno.ENXIO),
    "not-empty": (FileError, _errno.ENOTEMPTY),
    "bad-name": (FileError, _errno.EINVAL),
    "too-long": (FileError, _errno.ENAMETOOLONG),
    "link-loop": (FileError, _errno.ELOOP),
    "into-itself": (FileError, _errno.EINVAL),
    "too-many-links": (FileError, _errno.EMLINK),
    "no-numbers": (FileError, _errno.ENOSPC),
    "no-space": (NoSpace, _errno.ENOSPC),
    "index-full": (NoSpace, _errno.ENOSPC),
    "unavailable": (FileError, _errno.EIO),
    "damaged": (FileError, _errno.EIO),
    "not-open": (FileError, _errno.EBADF),
    "closed": (FileError, _errno.EBADF),
    "conflict": (Conflict, _errno.EBUSY),
    "sealed": (Sealed, _errno.EPERM),
    "too-large": (FileError, _errno.EFBIG),
    "too-many-changes": (FileError, _errno.EIO),
    "no-files": (FileError, _errno.EOPNOTSUPP),
    "read-only": (FileError, _errno.EROFS),
    "lost": (FileError, _errno.EIO),
    "out-of-reach": (FileError, _errno.EIO),
    "append-unknown": (FileError, _errno.EIO),
    "change-unknown": (FileError, _errno.EIO),
    "not-sealed": (NoSums, _errno.EINVAL),
    "sums-unknown": (NoSums, _errno.EAGAIN),
    "copy-differs": (FileError, _errno.EIO),
}


def _class_of(code: str) -> tuple[type[Error], int | None]:
    if code.startswith("read-") and code != "read-only":
        return ReadError, None
    return _CLASSES.get(code, (ServerError, None))


def _make(code: str, retryable: bool, message: str) -> Error:
    """The exception for a code; the extension calls it."""
    kind, number = _class_of(code)
    error = kind(message) if number is None else kind(number, message)
    error.code, error.retryable = code, retryable
    return error
