"""Real servers, each on drives of its own that are files of a temporary directory."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA, PARITY = 4, 1
READY_S = 60


def binary() -> str:
    """The program that is tested: FOREBAY_BINARY, or what was built in this tree last."""
    if named := os.environ.get("FOREBAY_BINARY"):
        return named
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "forebay" for profile in ("release", "debug")]
    found = sorted((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime)
    assert found, "build the server first (cargo build --release), or name it by FOREBAY_BINARY"
    return str(found[-1])


class Server:
    """A server that can be killed and started again, at the same address."""

    def __init__(self, directory: pathlib.Path, drive_bytes: str) -> None:
        self.directory = directory
        self.drives = [str(directory / f"drive{number}") for number in range(DATA + PARITY)]
        width = ["--data", str(DATA), "--parity", str(PARITY), "--lanes", "2"]
        subprocess.run([binary(), "-q", "init", *width, "--drive-bytes", drive_bytes, *self.drives], check=True, stdout=subprocess.DEVNULL)
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"forebay://{self.address}"

    def start(self) -> None:
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        command = [binary(), "-q", "serve", "--listen", self.address, "--ready-file", str(ready), *self.drives]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        until = time.monotonic() + READY_S
        while not (ready.exists() and ready.read_text().strip()):
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < until, "the server is not ready"
            time.sleep(0.01)
        self.address = ready.read_text().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def command(self, *arguments: str) -> subprocess.CompletedProcess:
        """A command of `forebay` against this server."""
        environment = {**os.environ, "FOREBAY_SERVER": self.address}
        return subprocess.run([binary(), *arguments], env=environment, capture_output=True, check=False)


def _directory() -> pathlib.Path:
    memory = pathlib.Path("/dev/shm")
    return pathlib.Path(tempfile.mkdtemp(prefix="forebay-python-", dir=memory if os.access(memory, os.W_OK) else None))


def serving(drive_bytes: str):
    """A server for as long as the generator waits."""
    directory = _directory()
    server = None
    try:
        server = Server(directory, drive_bytes)
        yield server
    finally:
        if server is not None and server.process.poll() is None:
            server.kill()
        shutil.rmtree(directory)
