"""The files of a store as an fsspec filesystem, ``forebay://HOST:PORT/path``."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import threading
import time
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from . import errors
from ._forebay import Files, Status
from ._open import BUFFER_BYTES, ReadFile, WriteFile, beside

PROTOCOL = "forebay"
DEFAULT_PORT = 7420
# What is copied at once between a local file and one of the store.
COPY_BYTES = 1 << 20


class ForebayFileSystem(AbstractFileSystem):
    """Files of a Forebay store.

    A file that is written is sealed when it is closed: it never changes again and has checksums from then on. What an exception cuts short is not sealed. A file
    that takes the place of another one is written beside it, and gets its name in one step when it is whole.

    Args:
        host: the server; by default that of ``FOREBAY_SERVER`` (``HOST:PORT``), or this machine.
        port: where it listens.
        deadline_s: how long a request is repeated before it is given up; None for ever.
        seal: whether files are sealed when they are closed.
        auto_mkdir: whether directories on the way to a file that is written are made.
        ahead_bytes: how much of what follows is on its way while a file is read in order.

    Each thread has a connection of its own.
    """

    protocol = PROTOCOL
    root_marker = "/"
    # Each file has its own read-ahead; a cache of Python would copy all of it once more.
    blocksize = COPY_BYTES

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        deadline_s: float | None = 60.0,
        seal: bool = True,
        auto_mkdir: bool = False,
        ahead_bytes: int = 8 << 20,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        self.address = _address(host, port)
        self.deadline_s = deadline_s
        self.seal_files = seal
        self.auto_mkdir = auto_mkdir
        self.ahead_bytes = ahead_bytes
        self._of_thread = threading.local()
        self._was_connected = False

    @property
    def files(self) -> Files:
        """The native files of this thread."""
        connected = getattr(self._of_thread, "connected", None)
        if connected is None or connected[0] != os.getpid():
            # A server that was there is waited for, as by threads that were connected before.
            must_listen = not self._was_connected
            files = Files(self.address, name="fsspec", deadline_s=self.deadline_s, must_listen=must_listen)
            self._of_thread.connected = connected = os.getpid(), files
            self._was_connected = True
        return connected[1]

    @property
    def fsid(self) -> str:
        return f"{PROTOCOL}-{self.address}"

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for start in (PROTOCOL + "://", PROTOCOL + "::"):
            if path.startswith(start):
                path = path[len(start) :].partition("/")[2]
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        start = PROTOCOL + "://"
        if not path.startswith(start):
            return {}
        address = path[len(start) :].partition("/")[0]
        host, _, port = address.rpartition(":")
        if not host:
            host, port = port, ""
        found: dict[str, Any] = {"host": host} if host else {}
        return {**found, "port": int(port)} if port else found

    def unstrip_protocol(self, name: str) -> str:
        return f"{PROTOCOL}://{self.address}{self._strip_protocol(name)}"

    # What is there.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        status = self.files.stat(path, follow=False)
        return self._info_of(path, status)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list:
        path = self._strip_protocol(path)
        status = self.files.stat(path)
        if status.kind != "directory":
            found = [self._info_of(path, status)]
        else:
            found = [self._info_of(f"{path.rstrip('/')}/{entry.name}", entry) for entry in self.files.list(path)]
        return found if detail else [entry["name"] for entry in found]

    def _info_of(self, path: str, status: Status) -> dict[str, Any]:
        """Of a link, what it leads to, if that is there."""
        is_link = status.kind == "link"
        if is_link:
            try:
                status = self.files.stat(path)
            except errors.FileError:
                pass
        written = status.written_unix_ns
        return {
            "name": path,
            "size": status.length or 0 if status.kind != "file" else status.length,
            "type": status.kind if status.kind in ("file", "directory") else "other",
            "islink": is_link,
            "mtime": None if written is None else written / 1e9,
            "ino": status.number,
            "mode": status.mode,
            "uid": status.owner,
            "gid": status.group,
            "nlink": status.links,
            "changed": status.changed_unix_ns,
            "sealed": status.sealed,
            "is_written": status.is_written,
            "crc32c": status.crc32c,
            "adler32": status.adler32,
        }

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.files.exists(self._strip_protocol(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.files.stat(self._strip_protocol(path), follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def modified(self, path: str) -> datetime.datetime:
        """When the content changed last, UTC."""
        status = self.files.stat(self._strip_protocol(path))
        return _time(status.written_unix_ns)

    def created(self, path: str) -> datetime.datetime:
        """When names or attributes changed last, UTC: as of local files (``st_ctime``), the time of making is not kept."""
        status = self.files.stat(self._strip_protocol(path))
        return _time(status.changed_unix_ns)

    def checksum(self, path: str, algorithm: str = "crc32c") -> int:
        """The sum that the store keeps of a sealed file: ``crc32c`` or ``adler32``.

        Raises:
            forebay.NoSums: the file is not sealed, and may still change.
        """
        return self.files.checksum(self._strip_protocol(path), algorithm)

    def ukey(self, path: str) -> str:
        """Another one when the content is another one: of a sealed file its number, which no other file ever has."""
        status = self.files.stat(self._strip_protocol(path))
        if status.sealed:
            return f"{self.fsid}-{status.number}-sealed"
        return f"{self.fsid}-{status.number}-{status.length}-{status.written_unix_ns}"

    # Bytes.

    def open(self, path, mode="rb", block_size=None, cache_options=None, compression=None, **kwargs):
        if compression is not None and not mode.startswith("r"):
            raise NotImplementedError(
                "what compresses here does not close the file that it writes to, which would not be sealed; nothing was made. "
                "Use fsspec.open(url, mode, compression=..)"
            )
        if "b" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        text = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
        binary = self.open(path, mode.replace("t", "") + "b", block_size, cache_options, compression, **kwargs)
        return _TextFile(binary, **text)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, seal=None, **kwargs):
        path = self._strip_protocol(path)
        if mode == "rb":
            native = self.files.open_read(path, ahead_bytes=kwargs.get("ahead_bytes", self.ahead_bytes))
            return ReadFile(self, path, native, block_size or BUFFER_BYTES)
        if self.auto_mkdir and mode != "r+b":
            self.makedirs(self._parent(path), exist_ok=True)
        if seal is None:
            seal = self.seal_files and mode != "ab"
        return WriteFile(self, path, mode, seal=seal, autocommit=autocommit)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        if start in (None, 0) and end is None:
            with self.files.open_read(path, ahead_bytes=self.ahead_bytes) as file:
                return file.read()
        return self.files.read_ranges(path, [self._range(path, start, end)])[0]

    def _range(self, path: str, start: int | None, end: int | None) -> tuple[int, int]:
        """Counted from the beginning."""
        start = 0 if start is None else start
        if start >= 0 and end is not None and end >= 0:
            return start, end
        length = self.files.stat(path).length or 0
        if start < 0:
            start = max(0, length + start)
        if end is None:
            end = length
        elif end < 0:
            end = max(0, length + end)
        return start, end

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """Parts of files; of those of one file that stand together the file is opened once."""
        if max_gap is not None:
            raise NotImplementedError("max_gap: what lies together is for the caller to join")
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("there are as many starts and ends as paths")
        found: list = []
        while len(found) < len(paths):
            first = last = len(found)
            while last < len(paths) and paths[last] == paths[first]:
                last += 1
            found += self._parts(paths[first], starts[first:last], ends[first:last], on_error)
        return found

    def _parts(self, path: str, starts: list, ends: list, on_error: str) -> list:
        path = self._strip_protocol(path)
        try:
            return self.files.read_ranges(path, [self._range(path, *part) for part in zip(starts, ends)])
        except errors.Error:
            if on_error != "return":
                raise
        # Some may be readable: each says it of itself.
        return [self._part(path, *part) for part in zip(starts, ends)]

    def _part(self, path: str, start: int | None, end: int | None) -> bytes | Exception:
        try:
            return self.files.read_ranges(path, [self._range(path, start, end)])[0]
        except errors.Error as error:
            return error

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as file:
            file.write(value)

    def get_file(self, rpath, lpath=None, callback=DEFAULT_CALLBACK, outfile=None, **kwargs):
        """A local copy, which gets its name when it is whole."""
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is not None:
            return super().get_file(rpath, lpath, callback, outfile, **kwargs)
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return None
        local = LocalFileSystem(auto_mkdir=True)
        lpath = local._strip_protocol(os.fspath(lpath))
        local.makedirs(local._parent(lpath), exist_ok=True)
        part = beside(lpath)
        try:
            with open(part, "xb") as file:
                super().get_file(rpath, lpath, callback, file, **kwargs)
            os.replace(part, lpath)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise

    # Names.

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if create_parents and self._parent(path) != "/":
            self.files.mkdir(self._parent(path), parents=True)
        self.files.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if path == "/" and exist_ok:
            return
        if not exist_ok and self.exists(path):
            raise FileExistsError(f"{path}: the name is taken; nothing was changed")
        self.files.mkdir(path, parents=True)

    def rmdir(self, path):
        self.files.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.files.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        """Removes files, and with ``recursive`` directories with all that is in them. A link is removed itself."""
        if maxdepth is not None:
            raise NotImplementedError("maxdepth: name what is to be removed")
        for one in self.expand_path(path) if _has_pattern(path) else _listed(path):
            one = self._strip_protocol(one)
            if not recursive:
                self.rm_file(one)
            elif self.lexists(one):
                self._rm_tree(one, self.files.stat(one, follow=False).kind)
            else:
                raise FileNotFoundError(f"{one}: there is no such file or directory; nothing was changed")

    def _rm_tree(self, path: str, kind: str) -> None:
        if kind != "directory":
            self.files.remove(path)
            return
        for entry in self.files.list(path):
            self._rm_tree(f"{path.rstrip('/')}/{entry.name}", entry.kind)
        if path != "/":
            self.files.rmdir(path)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        """Another name, in one step; what has it gives way. Into a directory that is there."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(target):
            target = f"{target.rstrip('/')}/{source.rsplit('/', 1)[1]}"
        if source != target:
            self.files.rename(source, target, replace=True)

    mv_file = mv

    def cp_file(self, path1, path2, **kwargs):
        """A copy within the store: sealed, its sums compared, and named when it is whole if the name was taken."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        if self.auto_mkdir:
            self.makedirs(self._parent(target), exist_ok=True)
        self.files.copy(source, target, replace=True)

    def touch(self, path, truncate=True, **kwargs):
        """An empty file that is not sealed, or with ``truncate=False`` a new time of one that is there."""
        path = self._strip_protocol(path)
        if not truncate and self.exists(path):
            self.files.set_written(path, time.time_ns())
            return
        with self.open(path, "wb", seal=False):
            pass

    def seal(self, path: str) -> None:
        """Has a file never change again."""
        self.files.seal(self._strip_protocol(path))

    def symlink(self, target: str, path: str) -> None:
        """Makes a symbolic link."""
        self.files.symlink(target, self._strip_protocol(path))


class _TextFile(io.TextIOWrapper):
    def __exit__(self, kind, error, trace):
        if kind is not None and isinstance(self.buffer, WriteFile):
            self.buffer.abandon()
        else:
            self.close()


def _address(host: str | None, port: int | None) -> str:
    if host is None and port is None:
        return os.environ.get("FOREBAY_SERVER", f"127.0.0.1:{DEFAULT_PORT}")
    return f"{host or '127.0.0.1'}:{port or DEFAULT_PORT}"


def _time(unix_ns: int | None) -> datetime.datetime:
    return datetime.datetime.fromtimestamp((unix_ns or 0) / 1e9, tz=datetime.timezone.utc)


def _listed(path) -> list:
    return list(path) if isinstance(path, (list, tuple)) else [path]


def _has_pattern(path) -> bool:
    return any(sign in stringify_path(one) for one in _listed(path) for sign in "*?[")
