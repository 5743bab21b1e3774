"""While a call waits other threads run: one of them is what ends the wait."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import forebay
from forebay.fs import ForebayFileSystem
from servers import serving

# Calls that kept the interpreter would be given up then.
DEADLINE_S = 5.0


@pytest.fixture(scope="module")
def paused():
    """A server, and what has a call begin while it stands still and a thread of Python let it go on."""
    for server in serving("128MiB"):
        yield server, lambda call: _while_it_stands_still(server, call)


def _while_it_stands_still(server, call):
    begins = threading.Event()

    def go_on():
        begins.wait()
        time.sleep(0.05)
        server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    server.process.send_signal(signal.SIGSTOP)
    begins.set()
    try:
        return call()
    finally:
        thread.join()


def test_calls_of_a_client_wait_and_let_others_run(paused):
    server, waiting = paused
    with forebay.Client(server.address, deadline_s=DEADLINE_S) as client:
        client.put(1, 1, 0, 1, b"x" * 1000)
        waiting(client.flush)
        assert [result.acknowledged for result in client.take_results()] == [True]
        client.put(1, 2, 0, 1, b"y")
        assert [result.event for result in waiting(lambda: client.take_results(DEADLINE_S))] == [2]
        assert waiting(lambda: client.get(1, 1, 0)) == b"x" * 1000
        assert waiting(lambda: client.get_many([(1, 2, 0)])) == [("found", b"y")]
        assert len(waiting(lambda: client.get_events([(1, 1)]))[0].fragments) == 1
        assert len(waiting(lambda: client.lease(1)).events) == 1
        assert waiting(lambda: client.decide([(1, 1, ["physics"])])) == ["done"]
        assert len(waiting(lambda: client.accepted("physics")).events) == 1
        assert waiting(lambda: client.release("physics", [(1, 1)])) == ["done"]
        assert waiting(lambda: client.delete([(1, 2)])) == ["done"]
        assert waiting(client.status) and waiting(lambda: client.trace(1, 1))
        waiting(client.ping)


def test_calls_of_files_wait_and_let_others_run(paused):
    server, waiting = paused
    data = os.urandom(3 << 20)
    files = waiting(lambda: forebay.Files(server.address, deadline_s=DEADLINE_S))
    waiting(lambda: files.mkdir("/d"))
    writer = waiting(lambda: files.create("/d/f", unanswered_bytes=1 << 20))
    waiting(lambda: writer.write(data))
    waiting(writer.sync)
    waiting(lambda: writer.pwrite(0, data))
    waiting(lambda: writer.truncate(len(data)))
    waiting(writer.close)
    reader = waiting(lambda: files.open_read("/d/f", ahead_bytes=0))
    room = bytearray(len(data))
    assert waiting(lambda: reader.readinto(room)) == len(data) and room == data
    reader.seek(0)
    assert waiting(lambda: reader.read()) == data
    assert waiting(lambda: reader.pread(5, 7)) == data[5:12]
    waiting(reader.close)
    assert waiting(lambda: files.read_ranges("/d/f", [(1, 4)])) == [data[1:4]]
    assert waiting(lambda: files.stat("/d/f")).sealed and waiting(lambda: files.exists("/d/f"))
    assert len(waiting(lambda: files.list("/d"))) == 1
    assert waiting(lambda: files.checksum("/d/f")) == files.stat("/d/f").crc32c
    waiting(lambda: files.copy("/d/f", "/d/g"))
    waiting(lambda: files.rename("/d/g", "/d/h"))
    waiting(lambda: files.remove("/d/h"))


def test_the_filesystem_waits_and_lets_others_run(paused):
    server, waiting = paused
    fs = ForebayFileSystem(*server.address.split(":"), deadline_s=DEADLINE_S)
    waiting(lambda: fs.pipe_file("/by-fs", b"z" * 100_000))
    assert waiting(lambda: fs.cat_file("/by-fs")) == b"z" * 100_000
    with fs.open("/by-fs", "rb") as file:
        assert waiting(lambda: file.read(10)) == b"z" * 10
