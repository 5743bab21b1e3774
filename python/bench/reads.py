#!/usr/bin/env python3
"""Reads of 1 MiB by Python beside those of the Rust client, of one file of one server, in turn.

    make python-bench

Each way is a process of its own in each round. What counts is the reading: the seconds of it, and how long its process was on a processor. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUEST_BYTES = 1 << 20
PATH = "/bench"


def by_fsspec(address: str):
    from forebay.fs import ForebayFileSystem

    file = ForebayFileSystem(*address.split(":")).open(PATH, "rb")
    return lambda: len(file.read(REQUEST_BYTES))


def by_parts(address: str):
    """As uproot reads: parts of a MiB, 16 in a call."""
    from forebay.fs import ForebayFileSystem

    fs = ForebayFileSystem(*address.split(":"))
    length, count, place = fs.size(PATH), 16, 0

    def read() -> int:
        nonlocal place
        starts = list(range(place, min(length, place + count * REQUEST_BYTES), REQUEST_BYTES))
        place += count * REQUEST_BYTES
        found = fs.cat_ranges([PATH] * len(starts), starts, [start + REQUEST_BYTES for start in starts], on_error="raise")
        return sum(len(part) for part in found)

    return read


def by_read(address: str):
    import forebay

    file = forebay.Files(address).open_read(PATH)
    return lambda: len(file.read(REQUEST_BYTES))


def by_readinto(address: str):
    import forebay

    file, room = forebay.Files(address).open_read(PATH), bytearray(REQUEST_BYTES)
    return lambda: file.readinto(room)


WAYS = {"fsspec": by_fsspec, "fsspec parts": by_parts, "Reader.read": by_read, "Reader.readinto": by_readinto}


def read_all(way: str, address: str) -> None:
    """One way, once; prints what it took."""
    read = WAYS[way](address)
    begin, before, total = time.perf_counter(), time.process_time(), 0
    while count := read():
        total += count
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - before
    print(json.dumps({"bytes": total, "seconds": seconds, "cpu_seconds": cpu_seconds}))


def told(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure(address: str, native: str, rounds: int, total: int) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {"Rust": [], **{way: [] for way in WAYS}}
    for number in range(rounds + 1):
        for way, results in found.items():
            result = told([native, address, PATH] if way == "Rust" else [sys.executable, __file__, "--way", way, "--server", address])
            assert result["bytes"] == total, f"{way} read {result['bytes']} of {total} bytes"
            # The first time the caches of server and kernel are cold.
            if number:
                results.append(result)
    return found


def summary(found: dict[str, list[dict]], total: int) -> dict:
    ways = {}
    for way, results in found.items():
        to_rust = [base["seconds"] / result["seconds"] for base, result in zip(found["Rust"], results)]
        ways[way] = {
            "bytes_per_s": statistics.median(total / result["seconds"] for result in results),
            "to_rust": statistics.median(to_rust),
            "to_rust_rounds": to_rust,
            "cpu_seconds_per_gb": statistics.median(result["cpu_seconds"] for result in results) / (total / 1e9),
        }
    return {"benchmark": "python-reads", "request_bytes": REQUEST_BYTES, "total_bytes": total, "ways": ways}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--native", help="the Rust program, read_file of crates/client/examples")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--mib", type=int, default=512)
    options.add_argument("--out", type=pathlib.Path, help="where the JSON object is written, too")
    options.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options.add_argument("--server", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.way:
        read_all(given.way, given.server)
        return
    sys.path.insert(0, str(ROOT / "python" / "tests"))
    from servers import serving

    import forebay

    server = next(serving_once := serving("512MiB"))
    with forebay.Files(server.address).create(PATH) as file:
        for _ in range(given.mib):
            file.write(os.urandom(REQUEST_BYTES))
    total = given.mib * REQUEST_BYTES
    result = summary(measure(server.address, given.native, given.rounds, total), total)
    for way, figures in result["ways"].items():
        print(f"{way:16} {figures['bytes_per_s'] / 1e9:6.2f} GB/s {figures['to_rust']:6.2f} of Rust {figures['cpu_seconds_per_gb']:6.2f} CPU s/GB")
    print(json.dumps(result))
    if given.out:
        given.out.write_text(json.dumps(result, indent=2) + "\n")
    serving_once.close()


if __name__ == "__main__":
    main()
