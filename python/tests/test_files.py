"""Names and bytes by the native client."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pathlib
import pickle
import zlib

import numpy
import pytest

import forebay


def write(files, path, data, **options):
    with files.create(path, **options) as file:
        assert file.write(data) == memoryview(data).nbytes


def test_a_file_is_read_back_and_is_sealed_when_it_is_closed(files, directory):
    path = f"{directory}/raw.dat"
    data = os.urandom(3_000_001)
    write(files, path, data)
    status = files.stat(path)
    assert (status.kind, status.length, status.sealed, status.outcome) == ("file", len(data), True, "found")
    assert (status.owner, status.group, status.mode) == (os.getuid(), os.getgid(), 0o644)
    with files.open_read(path) as file:
        assert file.length() == len(data)
        assert file.read(10) == data[:10] and file.tell() == 10
        assert file.read() == data[10:] and file.read() == b"" and file.read(5) == b""
        assert file.seek(-4, 2) == len(data) - 4 and file.read(100) == data[-4:]
        assert file.pread(1_048_570, 12) == data[1_048_570:1_048_582]
        assert file.seek(1_000) == 1_000 and file.seek(5, 1) == 1_005 and file.read(3) == data[1_005:1_008]
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_bytes_are_read_into_an_array_that_is_there(files, directory):
    values = numpy.arange(400_000, dtype="float64").reshape(400, 1000)
    write(files, f"{directory}/values", values)
    into = numpy.zeros_like(values)
    address = into.ctypes.data
    with files.open_read(f"{directory}/values") as file:
        assert file.readinto(into) == values.nbytes
        assert into.ctypes.data == address and numpy.array_equal(into, values)
        part = numpy.zeros(1000, dtype="float64")
        assert file.preadinto(7 * 8000, part) == 8000 and numpy.array_equal(part, values[7])
        assert file.readinto(bytearray(10)) == 0
        with pytest.raises(TypeError, match="may not be written"):
            file.readinto(b"0123")
        with pytest.raises(BufferError, match="do not lie together"):
            file.readinto(into[:, ::2])


def test_parts_end_where_the_file_does(files, directory):
    data = os.urandom(2_500_000)
    write(files, f"{directory}/parts", data)
    ranges = [(0, 10), (1_048_570, 1_048_590), (2_499_990, 3_000_000), (5_000_000, 5_000_010), (7, 7), (9, 3), (100, 2_400_000)]
    assert files.read_ranges(f"{directory}/parts", ranges) == [data[start:end] for start, end in ranges]


def test_a_file_may_be_written_anywhere_until_it_is_sealed(files, directory):
    path = f"{directory}/anywhere"
    with files.create(path) as file:
        file.write(b"0123456789")
        assert file.seek(4) == 4
        file.write(b"abc")
        file.pwrite(20, b"end")
        file.sync()
        assert file.length() == 23 and file.acknowledged_bytes() >= 13
        file.truncate(21)
    with files.open_read(path) as file:
        assert file.read() == b"0123abc789" + bytes(10) + b"e"


def test_what_an_exception_cuts_short_is_not_sealed(files, directory):
    path = f"{directory}/short"
    with pytest.raises(KeyError):
        with files.create(path) as file:
            file.write(b"half")
            raise KeyError("the analysis failed")
    assert not files.stat(path).sealed and file.closed


def test_a_file_that_grows_is_read_on(files, directory):
    path = f"{directory}/log"
    with files.create(path, append=True) as log:
        log.write(b"one\n")
        log.sync()
        with files.open_read(path) as file:
            assert file.read(100) == b"one\n" and file.read(100) == b""
            log.write(b"two\n")
            log.sync()
            assert file.read(100) == b"two\n"


def test_names_are_listed_renamed_and_removed(files, directory):
    files.mkdir(f"{directory}/a/b/c", parents=True)
    write(files, f"{directory}/a/file", b"123")
    files.symlink("file", f"{directory}/a/link")
    listed = {entry.name: (entry.kind, entry.length) for entry in files.list(f"{directory}/a")}
    assert listed["file"] == ("file", 3)
    assert (listed["b"][0], listed["link"][0]) == ("directory", "link")
    assert files.readlink(f"{directory}/a/link") == "file"
    assert files.stat(f"{directory}/a/link").kind == "file" and files.stat(f"{directory}/a/link", follow=False).kind == "link"
    assert all(entry.mode is not None for entry in files.list(f"{directory}/a", attributes=True))
    write(files, f"{directory}/other", b"4567")
    with pytest.raises(forebay.Exists):
        files.rename(f"{directory}/other", f"{directory}/a/file")
    files.rename(f"{directory}/other", f"{directory}/a/file", replace=True)
    assert files.stat(f"{directory}/a/file").length == 4 and not files.exists(f"{directory}/other")
    files.remove(f"{directory}/a/file")
    files.rmdir(f"{directory}/a/b/c")
    assert not files.exists(f"{directory}/a/file") and not files.exists(f"{directory}/a/b/c/d")


def test_names_of_any_bytes_come_back(files, directory):
    name = os.fsdecode(b"run 7 \xff\n\xc3\xa9")
    write(files, f"{directory}/{name}", b"x")
    assert [entry.name for entry in files.list(directory)] == [name]
    assert files.stat(os.fsencode(f"{directory}/{name}")).length == 1
    assert files.exists(pathlib.PurePosixPath(directory) / name)


def test_sums_are_those_of_the_bytes(files, directory):
    data = os.urandom(1_500_000)
    write(files, f"{directory}/sums", data)
    assert files.checksum(f"{directory}/sums", "adler32") == zlib.adler32(data)
    write(files, f"{directory}/check", b"123456789")
    assert files.checksum(f"{directory}/check") == 0xE3069283, "the check value of CRC32C"
    with pytest.raises(ValueError, match="no sum that is kept"):
        files.checksum(f"{directory}/check", "md5")


def test_a_sum_of_a_file_that_is_not_sealed_is_refused(files, directory):
    with files.create(f"{directory}/open", seal=False) as file:
        file.write(b"still written")
        file.sync()
        with pytest.raises(forebay.NoSums, match="not sealed") as caught:
            files.checksum(f"{directory}/open")
        assert (caught.value.code, caught.value.errno, caught.value.retryable) == ("not-sealed", errno.EINVAL, False)
    files.seal(f"{directory}/open")
    assert files.checksum(f"{directory}/open", "adler32") == zlib.adler32(b"still written")


def test_a_copy_in_the_store_is_the_same_and_takes_a_name_in_one_step(files, directory):
    data = os.urandom(2_100_000)
    write(files, f"{directory}/source", data)
    files.copy(f"{directory}/source", f"{directory}/copy")
    assert files.checksum(f"{directory}/copy") == files.checksum(f"{directory}/source")
    write(files, f"{directory}/old", b"old")
    with pytest.raises(forebay.Exists):
        files.copy(f"{directory}/source", f"{directory}/old")
    files.copy(f"{directory}/source", f"{directory}/old", replace=True)
    assert files.stat(f"{directory}/old").length == len(data)
    assert sorted(entry.name for entry in files.list(directory)) == ["copy", "old", "source"], "nothing else is left"


@pytest.mark.parametrize(
    ("call", "kind", "number", "code"),
    [
        (lambda files, at: files.open_read(f"{at}/nothing"), FileNotFoundError, errno.ENOENT, "not-found"),
        (lambda files, at: files.create(f"{at}/file"), FileExistsError, errno.EEXIST, "exists"),
        (lambda files, at: files.create(f"{at}/file/below"), NotADirectoryError, errno.ENOTDIR, "not-directory"),
        (lambda files, at: files.open_read(at), IsADirectoryError, errno.EISDIR, "is-directory"),
        (lambda files, at: files.open_write(f"{at}/file"), PermissionError, errno.EPERM, "sealed"),
        (lambda files, at: files.rmdir(at), OSError, errno.ENOTEMPTY, "not-empty"),
        (lambda files, at: files.create(f"{at}/{'x' * 256}"), OSError, errno.ENAMETOOLONG, "too-long"),
        (lambda files, at: files.create(f"{at}/.."), OSError, errno.EINVAL, "bad-name"),
        (lambda files, at: files.create(f"{at}/zero\0byte"), OSError, errno.EINVAL, "bad-name"),
        (lambda files, at: files.open_read(f"{at}/circle"), OSError, errno.ELOOP, "link-loop"),
        (lambda files, at: files.rename(at, f"{at}/into"), OSError, errno.EINVAL, "into-itself"),
        (lambda files, at: files.remove(at), IsADirectoryError, errno.EISDIR, "is-directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_names_are_refused_as_by_a_local_file_system(files, directory, call, kind, number, code):
    write(files, f"{directory}/file", b"here")
    files.symlink("circle", f"{directory}/circle")
    with pytest.raises(kind) as caught:
        call(files, directory)
    error = caught.value
    assert isinstance(error, forebay.FileError)
    assert (error.errno, error.code, error.retryable) == (number, code, False)
    assert "nothing was" in str(error), "the message says what it means for the data"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (type(error), error.code, str(error))


def _use_in_a_fork(files, fs, answers):
    try:
        files.exists("/")
        answers.put("it worked")
    except forebay.Error as error:
        answers.put(error.code)
    answers.put(fs.cat_file("/forked"))


def test_a_fork_does_not_use_the_connections_of_its_parent(files, fs):
    fs.pipe_file("/forked", b"by a connection of its own")
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_use_in_a_fork, args=(files, fs, answers))
    child.start()
    assert (answers.get(), answers.get()) == ("forked", b"by a connection of its own")
    child.join()
    assert child.exitcode == 0 and files.exists("/")
