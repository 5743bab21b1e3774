"""A stock XRootD server in front of a store, with the plug-in and the configuration that are shipped."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import pytest

from servers import ROOT

NOBODY = 65534
# Servers and clients ask for the machine's own name, which not every name server answers.
QUICK = {"RES_OPTIONS": "timeout:1 attempts:1"}


def need(is_there: bool, name: str) -> None:
    """Skips the test where something is missing; CI has it."""
    if not is_there:
        assert os.environ.get("CI") != "true", f"CI must have {name}"
        pytest.skip(f"needs {name}")


def need_programs() -> None:
    for program in ("xrootd", "cmake", "c++"):
        need(shutil.which(program) is not None, program)
    need(pathlib.Path("/usr/include/xrootd/XrdVersion.hh").exists(), "libxrootd-server-dev")
    need(bool(os.environ.get("FOREBAY_C_LIBRARIES")), "FOREBAY_C_LIBRARIES, where libforebay was built (make python-test says it)")


def install(prefix: pathlib.Path) -> None:
    """The library for C and the plug-in, as docs/xrootd.md says."""
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([ROOT / "tools" / "install-c.sh"], env={**os.environ, "PREFIX": str(prefix)}, **quiet)
    build = prefix / "build"
    places = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib"]
    subprocess.run(["cmake", "-S", ROOT / "plugins" / "xrootd", "-B", build, *places], **quiet)
    subprocess.run(["cmake", "--build", build, "--parallel", "2"], **quiet)
    subprocess.run(["cmake", "--install", build], **quiet)


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


class Gate:
    """The server, in a directory of its own; the plug-in is in the directory's `usr`."""

    def __init__(self, directory: pathlib.Path, store: str) -> None:
        self.directory, self.store = directory, store
        for name in ("admin", "run"):
            (directory / name).mkdir()
            if os.getuid() == 0:
                os.chown(directory / name, NOBODY, NOBODY)
        while not self._start():
            assert "address already in use" in self.said(), self.said()

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.port}/"

    def said(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _configure(self) -> None:
        self.port, http = free_ports()
        text = (self.directory / "usr" / "etc" / "xrootd" / "forebay.cfg").read_text()
        for shipped, own in (
            ("127.0.0.1:7420", self.store),
            ("/var/spool/xrootd", f"{self.directory}/admin"),
            ("/run/xrootd", f"{self.directory}/run"),
            ("xrd.port 1094", f"xrd.port {self.port}\nxrd.network nodnr"),
            ("/usr/local/bin", f"{self.directory}/usr/bin"),
            ("http:8094", f"http:{http}"),
        ):
            assert shipped in text
            text = text.replace(shipped, own)
        (self.directory / "xrootd.cfg").write_text(text)

    def _start(self) -> bool:
        """Whether it serves; not where another one took its ports."""
        self._configure()
        # It does not run as root.
        user = ["-R", "nobody"] if os.getuid() == 0 else []
        environment = {**os.environ, **QUICK, "LD_LIBRARY_PATH": str(self.directory / "usr" / "lib")}
        with open(self.directory / "log", "wb") as log:
            command = ["xrootd", *user, "-I", "v4", "-c", str(self.directory / "xrootd.cfg")]
            self.process = subprocess.Popen(command, env=environment, cwd=self.directory / "run", stdout=log, stderr=log)
        while not any(line.startswith("------ xrootd ") and line.endswith("initialization completed.") for line in self.said().splitlines()):
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def serving(store: str):
    """A server for as long as the generator waits."""
    need_programs()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="forebay-xrootd-"))
    gate = None
    try:
        directory.chmod(0o755)
        install(directory / "usr")
        gate = Gate(directory, store)
        yield gate
    finally:
        if gate is not None:
            gate.kill()
        shutil.rmtree(directory)
