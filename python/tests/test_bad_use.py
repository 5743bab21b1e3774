"""What goes wrong around a client: each is told, and none makes a wrong file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

import forebay
from forebay.fs import ForebayFileSystem

WRITE_AND_SAY_SO = """
import sys, time, forebay
files = forebay.Files(sys.argv[1])
file = files.create(sys.argv[2])
file.write(b"a" * 1_000_000)
file.sync()
print("durable", flush=True)
while True:
    file.write(b"b" * 100_000)
    time.sleep(0.001)
"""


def test_a_writer_that_is_killed_leaves_what_was_durable_and_no_seal(server, files, directory):
    path = f"{directory}/killed"
    writer = subprocess.Popen([sys.executable, "-c", WRITE_AND_SAY_SO, server.address, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "durable\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    status = files.stat(path)
    assert not status.sealed and status.length >= 1_000_000
    with files.open_read(path) as file:
        data = file.read()
    assert data[:1_000_000] == b"a" * 1_000_000 and set(data[1_000_000:]) <= {ord("b"), 0}
    with pytest.raises(forebay.NoSums):
        files.checksum(path)
    files.remove(path)


def test_two_writers_of_the_same_bytes_are_not_mixed(server, files, directory):
    path = f"{directory}/two"
    first = files.create(path)
    first.write(b"1" * 100_000)
    first.sync()
    with forebay.Files(server.address) as other_files:
        second = other_files.open_write(path)
        second.pwrite(50_000, b"2" * 10)
        with pytest.raises(forebay.Conflict, match="another writer") as caught:
            second.sync()
        assert (caught.value.errno, caught.value.code) == (errno.EBUSY, "conflict")
        second.abandon()
    first.close()
    with files.open_read(path) as file:
        assert file.read() == b"1" * 100_000


def test_two_who_create_one_name_get_one_file(server, files, directory):
    path = f"{directory}/one"
    first = files.create(path)
    with forebay.Files(server.address) as other_files, pytest.raises(FileExistsError):
        other_files.create(path)
    first.close()


def test_a_sealed_file_is_not_changed(fs, directory):
    path = f"{directory}/sealed"
    fs.pipe_file(path, b"for ever")
    with fs.open(path, "r+b") as file:
        assert file.read() == b"for ever"
        with pytest.raises(PermissionError, match="sealed"):
            file.write(b"x")
        with pytest.raises(PermissionError, match="sealed"):
            file.truncate(3)
    with pytest.raises(PermissionError, match="sealed"):
        fs.open(path, "ab")
    assert fs.cat_file(path) == b"for ever"


def fill(files, path):
    """Writes until the store is full; the writer, and how much is durable."""
    writer = files.create(path, patience_s=0.2)
    block = os.urandom(1 << 20)
    for _ in range(1000):
        try:
            writer.write(block)
            writer.sync()
        except forebay.NoSpace as error:
            return writer, error
    raise AssertionError("the store is never full")


def test_a_full_store_says_so_and_keeps_what_was_acknowledged(small_server):
    with forebay.Files(small_server.address, deadline_s=5.0) as files:
        writer, error = fill(files, "/large")
        assert (error.errno, error.code, error.retryable) == (errno.ENOSPC, "no-space", True)
        assert "the store is full" in str(error)
        durable = writer.acknowledged_bytes()
        assert durable > 0
        writer.abandon()
        status = files.stat("/large")
        assert not status.sealed and status.length >= durable
        fs = ForebayFileSystem(*small_server.address.split(":"), deadline_s=1.0)
        with pytest.raises(OSError) as caught:
            with fs.open("/another", "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
        assert caught.value.errno == errno.ENOSPC
        assert not (fs.exists("/another") and fs.info("/another")["sealed"]), "what did not fit does not look whole"


def test_a_file_that_did_not_fit_leaves_the_one_that_it_was_to_replace(small_server):
    fs = ForebayFileSystem(*small_server.address.split(":"), deadline_s=1.0)
    fs.pipe_file("/kept", b"old and whole")
    with pytest.raises(OSError) as caught:
        with fs.open("/kept", "wb") as file:
            for _ in range(100):
                file.write(bytes(1 << 20))
    assert caught.value.errno == errno.ENOSPC
    assert fs.cat_file("/kept") == b"old and whole"


def test_a_copy_goes_on_over_a_restart_of_the_server(own_server, tmp_path):
    local = tmp_path / "local"
    block = os.urandom(1 << 20)
    with open(local, "wb") as file:
        for number in range(60):
            file.write(number.to_bytes(4, "little") + block[4:])
    fs = ForebayFileSystem(*own_server.address.split(":"))
    fs.ls("/")
    copied = threading.Thread(target=fs.put_file, args=(str(local), "/copy"))
    with fs.open("/watched", "wb") as watched:
        watched.write(b"before ")
        watched.flush()
        copied.start()
        own_server.kill()
        own_server.start()
        watched.write(b"and after")
    copied.join()
    assert fs.cat_file("/watched") == b"before and after"
    assert fs.info("/copy")["sealed"] and fs.cat_file("/copy") == local.read_bytes()
    back = tmp_path / "back"
    reading = threading.Thread(target=fs.get_file, args=("/copy", str(back)))
    reading.start()
    own_server.kill()
    own_server.start()
    reading.join()
    assert back.read_bytes() == local.read_bytes()


def test_a_server_that_does_not_come_back_ends_a_copy_clearly(own_server, tmp_path):
    fs = ForebayFileSystem(*own_server.address.split(":"), deadline_s=1.0)
    fs.pipe_file("/here", bytes(3 << 20))
    local = tmp_path / "local"
    file = fs.open("/here", "rb")
    writer = fs.open("/half", "wb")
    writer.write(b"half")
    writer.flush()
    own_server.kill()
    with pytest.raises(TimeoutError, match="no answer") as caught:
        writer.write(bytes(32 << 20))
        writer.close()
    assert caught.value.retryable and caught.value.code == "deadline"
    with pytest.raises(TimeoutError):
        file.seek(2 << 20)
        file.read()
    with pytest.raises(forebay.Error):
        fs.get_file("/here", str(local))
    assert not local.exists() and os.listdir(tmp_path) == [], "no local file looks whole"
    own_server.start()
    # One with more patience than the pause between two attempts to connect.
    patient = ForebayFileSystem(*own_server.address.split(":"))
    assert patient.cat_file("/here") == bytes(3 << 20)
    assert not patient.info("/half")["sealed"]
    with pytest.warns(ResourceWarning, match="not closed"):
        # The exception holds the frames that it passed, and these the file.
        del caught, writer


def test_puts_are_answered_over_a_restart(own_server):
    client = forebay.Client(own_server.address)
    for event in range(200):
        client.put(1, event, 0, 1, bytes([event]) * 10_000)
        if event == 100:
            own_server.kill()
            own_server.start()
    client.flush()
    results = client.take_results()
    assert len(results) == 200 and all(result.acknowledged for result in results)
    assert all(bytes(client.get(1, event, 0)) == bytes([event]) * 10_000 for event in range(200))


def test_another_store_at_the_same_address_is_not_taken_for_the_first(own_server, small_server):
    client = forebay.Client(own_server.address, deadline_s=5.0)
    address = own_server.address
    own_server.kill()
    small_server.stop()
    small_server.address = address
    small_server.start()
    with pytest.raises(forebay.ServerError, match="is now store") as caught:
        client.put(1, 1, 0, 1, b"x")
        client.flush()
    assert not caught.value.retryable
