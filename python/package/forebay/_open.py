"""Files that are open, as Python's ``io`` has them."""

from __future__ import annotations

import io
import os
import sys
import uuid
import warnings
from typing import TYPE_CHECKING

from . import errors
from ._forebay import Reader, Writer

if TYPE_CHECKING:
    from .fs import ForebayFileSystem

# What small reads are served from; larger ones go past it, straight into the bytes that are given back.
BUFFER_BYTES = 64 << 10
# Of a file that is read while it is written so much is read ahead: what was written makes it void.
AHEAD_WHILE_WRITING_BYTES = 1 << 20
# How far above a call of close() the end of a `with` block is looked for.
FRAMES = 6


def beside(path: str) -> str:
    """A name in the same directory that nobody has."""
    directory, slash, _ = path.rpartition("/")
    return f"{directory}{slash}.forebay-{uuid.uuid4().hex}.part"


class _RawFile(io.RawIOBase):
    """What ``io.BufferedReader`` reads from."""

    mode = "rb"

    def __init__(self, native: Reader, name: str) -> None:
        self._native = native
        self.name = name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        return self._native.readinto(buffer)

    def readall(self) -> bytes:
        return self._native.read()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        return self._native.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._native.close()


class ReadFile(io.BufferedReader):
    """A file of the store that is open for reading."""

    def __init__(self, fs: ForebayFileSystem, path: str, native: Reader, buffer_bytes: int) -> None:
        super().__init__(_RawFile(native, path), buffer_bytes)
        self.fs = fs
        self.path = path
        self._native = native

    @property
    def size(self) -> int:
        """Bytes, as far as is known of a file that grows."""
        return self._native.length()

    @property
    def details(self) -> dict:
        """What is known of the file."""
        return self.fs.info(self.path)

    info = details.fget

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, wherever the file is read on."""
        return self._native.pread(start, max(0, end - start))


class WriteFile(io.BufferedIOBase):
    """A file of the store that is open for writing, anywhere in it; with ``r+b`` and ``w+b`` also for reading.

    ``close`` seals it. The end of a ``with`` block that an exception leaves does not, and neither does the collector of garbage.
    """

    def __init__(self, fs: ForebayFileSystem, path: str, mode: str, *, seal: bool, autocommit: bool) -> None:
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        if mode not in ("wb", "xb", "ab", "r+b", "w+b", "x+b"):
            raise ValueError(f"{mode!r} is no way to open a file")
        self.fs, self.path, self.mode, self.name = fs, path, mode, path
        self._files = fs.files
        self._seal, self._autocommit = seal, autocommit
        self._was_written = False
        # Another name as long as the file is not whole, when something has its own.
        self._beside: str | None = None
        self._error_before = sys.exc_info()[1]
        self._open()

    def _open(self) -> None:
        if self.mode == "r+b":
            self._open_to_update()
        elif self.mode == "ab":
            self._open_to_append()
        elif not self._autocommit or (self.mode.startswith("w") and self._is_taken()):
            self._replace()
        else:
            self._writer = self._files.create(self.path, seal=self._seal)

    def _is_taken(self) -> bool:
        try:
            status = self._files.stat(self.path)
        except errors.NotFound:
            return False
        if status.kind == "directory":
            raise errors._make("is-directory", False, f"{self.path}: it is a directory; nothing was changed. Name a file in it")
        return True

    def _open_to_update(self) -> None:
        try:
            self._writer = self._files.open_write(self.path, seal=self._seal)
        except errors.Sealed:
            # It can be read, and be replaced by one that begins empty.
            self._reader = self._files.open_read(self.path, ahead_bytes=AHEAD_WHILE_WRITING_BYTES)
        else:
            self._writer.seek(0)

    def _open_to_append(self) -> None:
        try:
            self._writer = self._files.open_write(self.path, append=True, seal=self._seal)
        except errors.NotFound:
            self._writer = self._files.create(self.path, append=True, seal=self._seal)

    def _replace(self) -> None:
        self._beside = beside(self.path)
        self._writer = self._files.create(self._beside, seal=self._seal)

    @property
    def _where(self) -> str:
        return self._beside or self.path

    def _written(self) -> Writer:
        """The native writer, for a change."""
        self._check_open()
        if self._writer is None:
            message = "the file is sealed and does not change any more; nothing was changed. Write a new file, and rename it over this one"
            raise errors._make("sealed", False, f"{self.path}: {message}")
        return self._writer

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file or client")

    def _place(self) -> Writer | Reader:
        """What knows where the file goes on."""
        self._check_open()
        return self._writer or self._reader

    def readable(self) -> bool:
        return "+" in self.mode

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data) -> int:
        writer = self._written()
        self._forget_read()
        self._was_written = True
        return writer.write(data)

    def read(self, size: int | None = -1) -> bytes:
        if not self.readable():
            raise io.UnsupportedOperation("the file was opened for writing alone")
        place = self._place()
        at = place.tell()
        length = self.size
        count = max(0, length - at) if size is None or size < 0 else min(size, max(0, length - at))
        data = self._to_read().pread(at, count)
        place.seek(at + len(data))
        return data

    read1 = read

    def readinto(self, buffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    readinto1 = readinto

    def _to_read(self) -> Reader:
        if self._reader is None:
            self._writer.sync()
            self._reader = self._files.open_read(self._where, ahead_bytes=AHEAD_WHILE_WRITING_BYTES)
        return self._reader

    def _forget_read(self) -> None:
        """What was read ahead is not what the file holds any more."""
        if self._writer is not None and self._reader is not None:
            self._reader.close()
            self._reader = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._place().seek(offset, whence)

    def tell(self) -> int:
        return self._place().tell()

    @property
    def size(self) -> int:
        """Bytes, with all that was written."""
        return self._place().length()

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        if self._writer is None and length == 0:
            at = self.tell()
            self._reader.close()
            self._reader = None
            self._replace()
            self._writer.seek(at)
            return 0
        writer = self._written()
        self._forget_read()
        writer.truncate(length)
        return length

    def flush(self) -> None:
        """Waits until all that was written is durable."""
        if self._writer is not None and not self._writer.closed:
            self._writer.sync()

    def close(self) -> None:
        """Waits until all is durable, seals the file, and gives it its name."""
        if self.closed:
            return
        if self._is_cut_short():
            self.abandon()
            return
        if self._writer is not None:
            self._close_writer()
            if self._beside is not None and self._autocommit:
                self.commit()
        self._end()

    def _close_writer(self) -> None:
        # Who makes a file by "x" and writes nothing claims its name, and opens it again to write: so does uproot.
        if self.mode.startswith("x") and not self._was_written:
            self._writer.abandon()
        else:
            self._writer.close()

    def _is_cut_short(self) -> bool:
        """Whether a ``with`` block of something that holds this file is left by an exception: fsspec and uproot call ``close`` then, and say nothing of it."""
        error = sys.exc_info()[1]
        if error is None or error is self._error_before:
            return False
        frame = sys._getframe(1)
        for _ in range(FRAMES):
            if frame is None:
                return False
            if frame.f_code.co_name == "__exit__":
                return True
            frame = frame.f_back
        return False

    def _end(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        super().close()

    def commit(self) -> None:
        """Gives the file its name, at the end of a transaction."""
        if self._beside is not None:
            self._files.rename(self._beside, self.path, replace=True)
            self._beside = None

    def discard(self) -> None:
        """Removes what has no name of its own yet."""
        if not self.closed:
            self.abandon()
        elif self._beside is not None:
            self._remove_beside()

    def _remove_beside(self) -> None:
        self._files.remove(self._beside)
        self._beside = None

    def abandon(self) -> None:
        """Closes the file as it is: not sealed, and what has no name of its own yet is removed."""
        if self.closed:
            return
        try:
            if self._writer is not None:
                self._writer.abandon()
                if self._beside is not None:
                    self._remove_beside()
        finally:
            self._end()

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        if self._writer is None or self.closed:
            return
        warnings.warn(f"{self.path}: it was not closed, and is not sealed", ResourceWarning, source=self)
        try:
            self.abandon()
        except Exception:
            # The server takes it for left within a minute.
            pass
