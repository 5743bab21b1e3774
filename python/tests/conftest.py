"""Real servers and clients for the tests."""

from __future__ import annotations

import collections
import importlib.util
import os
import subprocess
import time

import pytest

import forebay
import gate as xrootd
from servers import binary, serving

MOUNTED_S = 60


@pytest.fixture(scope="session")
def server():
    """One that all tests share that do not harm it."""
    yield from serving("256MiB")


@pytest.fixture
def own_server():
    """One that a test may kill."""
    yield from serving("128MiB")


@pytest.fixture
def small_server():
    """One that is full soon."""
    yield from serving("16MiB")


@pytest.fixture(scope="session")
def gate(server):
    """An XRootD server before the one that all tests share."""
    for module in ("XRootD", "fsspec_xrootd"):
        xrootd.need(importlib.util.find_spec(module) is not None, f"the Python package of {module}")
    os.environ.update(xrootd.QUICK)
    yield from xrootd.serving(server.address)


@pytest.fixture
def mount(server, tmp_path):
    """Where the store is mounted."""
    xrootd.need(os.access("/dev/fuse", os.W_OK), "/dev/fuse, writable")
    directory = tmp_path / "mount"
    directory.mkdir()
    process = subprocess.Popen([binary(), "-q", "mount", "--foreground", server.address, str(directory)])
    until = time.monotonic() + MOUNTED_S
    while not os.path.ismount(directory):
        assert process.poll() is None and time.monotonic() < until, "the mount does not stand"
        time.sleep(0.01)
    yield directory
    subprocess.run(["umount" if os.getuid() == 0 else "fusermount3", *([] if os.getuid() == 0 else ["-u"]), str(directory)], check=True)
    process.wait()


@pytest.fixture
def files(server):
    with forebay.Files(server.address) as files:
        yield files


@pytest.fixture
def directory(files, request):
    """A directory of the test's own in the shared store."""
    path = f"/{request.node.name.replace('/', '-')[:200]}-{time.monotonic_ns()}"
    files.mkdir(path)
    return path


@pytest.fixture
def fs(server):
    from forebay.fs import ForebayFileSystem

    host, port = server.address.split(":")
    return ForebayFileSystem(host, int(port))


def pytest_terminal_summary(terminalreporter):
    """What was skipped for want of something, and what failed, as the runner of the Rust tests says it."""
    found = terminalreporter.stats
    counts = [f"{len(found.get(kind, []))} {kind}" for kind in ("passed", "failed", "error", "skipped")]
    terminalreporter.write_line("tests: " + ", ".join(counts) + ", in Python")
    reasons = collections.Counter(report.longrepr[2].removeprefix("Skipped: ") for report in found.get("skipped", []))
    for reason, times in reasons.items():
        terminalreporter.write_line(f"skipped {times} x: {reason}")
    for report in found.get("failed", []) + found.get("error", []):
        terminalreporter.write_line(f"failed: {report.nodeid}")
