#!/usr/bin/env python3
"""The LHCb analysis benchmark B2HHH on a store: RNTuples of four page sizes, with and without zstd, written through `forebay://` and read by every door.

    pip install './python[example]'
    python python/examples/b2hhh.py --input PhaseSpaceSimulation.root --out b2hhh

The 26 columns of B -> hhh decays come from a ROOT file, or are generated. Each variant is written once to a local file and once to the store, and read back by the
native client, by fsspec, by a mount (`--mount`) and by XRootD (`--root-url`). The histogram of the mass of three kaons must be, count for count, that of the local
file by each of them. It ends with 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

import numpy
import uproot

import forebay
from forebay.fs import ForebayFileSystem

KAON_MEV = 493.677
BINS, MASS_MIN_MEV, MASS_MAX_MEV = 500, 5050.0, 5500.0
B_MEV = 5279.3
HADRONS = ("H1", "H2", "H3")
FLOATS = [f"{hadron}_{name}" for hadron in HADRONS for name in ("PX", "PY", "PZ", "ProbK", "ProbPi", "IPChi2")] + ["B_FlightDistance", "B_VertexChi2"]
INTEGERS = [f"{hadron}_{name}" for hadron in HADRONS for name in ("Charge", "isMuon")]
TYPES = {**dict.fromkeys(FLOATS, "float64"), **dict.fromkeys(INTEGERS, "int32")}
READ = [f"{hadron}_{name}" for hadron in HADRONS for name in ("PX", "PY", "PZ", "ProbK", "ProbPi", "isMuon")]
PAGE_BYTES = (64 << 10, 512 << 10, 1 << 20, 4 << 20)
COMPRESSIONS = {"none": None, "zstd": uproot.ZSTD(5)}
NAME = "DecayTree"

Columns = dict[str, numpy.ndarray]


def load(path: pathlib.Path) -> Columns:
    """The columns of the first tree or RNTuple of a file that has all of them."""
    with uproot.open(path) as file:
        for key in file.keys():
            if set(TYPES) <= set(file[key].keys()):
                found = file[key].arrays(list(TYPES), library="np")
                return {name: found[name].astype(kind) for name, kind in TYPES.items()}
    raise SystemExit(f"{path}: no tree has the 26 columns of B2HHH; name another file, or none to have them generated")


def generate(entries: int, seed: int) -> Columns:
    """Decays that look like those of a B into three kaons on a background, for who has no file of them: one in ten has a muon, and probabilities fill 0 to 1."""
    random = numpy.random.default_rng(seed)
    found: Columns = {}
    momenta = random.normal(0.0, 3000.0, (3, 3, entries))
    momenta[:, 2] = numpy.abs(momenta[:, 2]) * 10.0
    momenta *= _scale_to(momenta, random.uniform(MASS_MIN_MEV, MASS_MAX_MEV, entries), random.random(entries) < 0.4, random)
    for number, hadron in enumerate(HADRONS):
        for axis, name in enumerate(("PX", "PY", "PZ")):
            found[f"{hadron}_{name}"] = momenta[number, axis]
        found[f"{hadron}_ProbK"] = random.beta(4.0, 1.0, entries)
        found[f"{hadron}_ProbPi"] = random.beta(1.0, 4.0, entries)
        found[f"{hadron}_IPChi2"] = random.exponential(1000.0, entries)
        found[f"{hadron}_Charge"] = random.choice([-1, 1], entries)
        found[f"{hadron}_isMuon"] = (random.random(entries) < 0.1).astype("int32")
    found["B_FlightDistance"] = random.exponential(20.0, entries)
    found["B_VertexChi2"] = random.exponential(3.0, entries)
    return {name: found[name].astype(kind) for name, kind in TYPES.items()}


def _scale_to(momenta: numpy.ndarray, background_mev: numpy.ndarray, is_signal: numpy.ndarray, random: numpy.random.Generator) -> numpy.ndarray:
    """By what momenta are multiplied to come near these masses. The kaons are so fast that a few steps do."""
    wanted = numpy.where(is_signal, random.normal(B_MEV, 20.0, len(is_signal)), background_mev)
    scale = numpy.ones(len(is_signal))
    for _ in range(20):
        scale *= wanted / _mass(momenta * scale)
    return scale


def _mass(momenta: numpy.ndarray) -> numpy.ndarray:
    """The mass of three kaons with momenta of the shape (3, 3, entries), MeV."""
    energy = numpy.sqrt((momenta**2).sum(axis=1) + KAON_MEV**2).sum(axis=0)
    return numpy.sqrt(energy**2 - (momenta.sum(axis=0) ** 2).sum(axis=0))


def histogram(columns: Columns) -> numpy.ndarray:
    """The counts of the mass in 500 bins from 5050 to 5500 MeV, of what passes the cuts."""
    keep = numpy.ones(len(columns["H1_PX"]), dtype=bool)
    for hadron in HADRONS:
        keep &= columns[f"{hadron}_isMuon"] == 0
        keep &= (columns[f"{hadron}_ProbK"] >= 0.5) & (columns[f"{hadron}_ProbPi"] <= 0.5)
    momenta = numpy.array([[columns[f"{hadron}_{name}"][keep] for name in ("PX", "PY", "PZ")] for hadron in HADRONS])
    return numpy.histogram(_mass(momenta), bins=BINS, range=(MASS_MIN_MEV, MASS_MAX_MEV))[0]


def write(target: str, columns: Columns, page_bytes: int, compression: str) -> None:
    """Writes an RNTuple. uproot makes a page of each column of what it is given at once: a page of eight bytes an entry has so many."""
    entries = page_bytes // 8
    with uproot.recreate(target, compression=COMPRESSIONS[compression]) as file:
        ntuple = file.mkrntuple(NAME, TYPES)
        for start in range(0, len(columns["H1_PX"]), entries):
            ntuple.extend({name: column[start : start + entries] for name, column in columns.items()})


def read(source) -> Columns:
    """The 18 columns that the analysis needs, of a URL, a path or an open file."""
    with uproot.open(source) as file:
        return file[NAME].arrays(READ, library="np")


def doors(options: argparse.Namespace, files: forebay.Files) -> dict[str, Callable[[str], Columns]]:
    """By the name of each door, what reads a path of the store."""
    found: dict[str, Callable[[str], Columns]] = {
        "native": lambda path: read_natively(files, path),
        "fsspec": lambda path: read(f"forebay://{options.server}{path}"),
    }
    if options.mount is not None:
        found["mount"] = lambda path: read(options.mount / path.lstrip("/"))
    if options.root_url is not None:
        found["root"] = lambda path: read(f"{options.root_url.rstrip('/')}/{path}")
    return found


def read_natively(files: forebay.Files, path: str) -> Columns:
    with files.open_read(path) as file:
        return read(file)


def timed(what: Callable, *arguments) -> tuple[float, object]:
    begin = time.perf_counter()
    result = what(*arguments)
    return time.perf_counter() - begin, result


def variant(options: argparse.Namespace, columns: Columns, page_bytes: int, compression: str, by: dict, local: pathlib.Path) -> dict:
    """Writes one variant and reads it by each door: a row of the table. The histograms are compared here."""
    path = f"{options.directory}/b2hhh-{page_bytes >> 10}KiB-{compression}.root"
    row = {"page_kib": page_bytes >> 10, "compression": compression, "path": path}
    row["local_write_s"], _ = timed(write, str(local), columns, page_bytes, compression)
    row["local_read_s"], found = timed(read, str(local))
    expected = histogram(found)
    row["store_write_s"], _ = timed(write, f"forebay://{options.server}{path}", columns, page_bytes, compression)
    row["bytes"] = local.stat().st_size
    row["counts"] = expected
    for door, read_by in by.items():
        row[f"{door}_read_s"], found = timed(read_by, path)
        row[f"{door}_same"] = bool(numpy.array_equal(histogram(found), expected))
    return row


def plot(counts: numpy.ndarray, entries: int, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.stairs(counts, numpy.linspace(MASS_MIN_MEV, MASS_MAX_MEV, BINS + 1))
    axes.set_xlabel("mass of three kaons, MeV")
    axes.set_ylabel(f"candidates in {(MASS_MAX_MEV - MASS_MIN_MEV) / BINS:g} MeV")
    axes.set_title(f"B2HHH: {int(counts.sum())} of {entries} candidates")
    figure.savefig(path)
    pyplot.close(figure)


def tell(rows: list[dict]) -> None:
    timings = [name for name in rows[0] if name.endswith("_s")]
    print("  page compression       bytes " + " ".join(f"{name.removesuffix('_s'):>12}" for name in timings))
    for row in rows:
        print(f"{row['page_kib']:>6} {row['compression']:<11} {row['bytes']:>11} " + " ".join(f"{row[name]:>10.3f} s" for name in timings))


def run(options: argparse.Namespace) -> bool:
    """All variants; whether every histogram is that of the local file."""
    columns = load(options.input) if options.input else generate(options.entries, options.seed)
    columns = {name: numpy.tile(column, options.repeat) for name, column in columns.items()}
    entries = len(columns["H1_PX"])
    options.out.mkdir(parents=True, exist_ok=True)
    ForebayFileSystem(*options.server.rsplit(":", 1)).makedirs(options.directory, exist_ok=True)
    rows = []
    with forebay.Files(options.server) as files, tempfile.TemporaryDirectory() as scratch:
        by = doors(options, files)
        for page_bytes in options.page_bytes:
            for compression in options.compressions:
                rows.append(variant(options, columns, page_bytes, compression, by, pathlib.Path(scratch) / "local.root"))
    counts = rows[0]["counts"]
    # The variants hold the same decays, so that all of them have one histogram.
    same = all(numpy.array_equal(row.pop("counts"), counts) for row in rows)
    same = same and all(row[name] for row in rows for name in row if name.endswith("_same"))
    plot(counts, entries, options.out / "b2hhh.svg")
    table = {"entries": entries, "repeated": options.repeat, "passed": int(counts.sum()), "same": same, "rows": rows}
    (options.out / "b2hhh.json").write_text(json.dumps(table, indent=1))
    tell(rows)
    repeated = f", the same {entries // options.repeat} {options.repeat} times" if options.repeat > 1 else ""
    print(f"{entries} decays{repeated}, {int(counts.sum())} pass and lie in the range; {'all histograms are the same' if same else 'HISTOGRAMS DIFFER'}")
    return same


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    import os

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--server", default=os.environ.get("FOREBAY_SERVER", "127.0.0.1:7420"), help="HOST:PORT")
    options.add_argument("--directory", default="/b2hhh", help="of the store, where the files are written")
    options.add_argument("--input", type=pathlib.Path, help="a ROOT file with the 26 columns; generated without it")
    options.add_argument("--entries", type=int, default=100_000, help="so many decays are generated")
    options.add_argument("--repeat", type=int, default=1, help="each decay so many times, for larger files")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--mount", type=pathlib.Path, help="where the store is mounted")
    options.add_argument("--root-url", help="of an XRootD server that serves the store, as root://host:1094/")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("b2hhh"), help="where plot and table are written")
    options.add_argument("--page-bytes", type=int, nargs="+", default=list(PAGE_BYTES))
    options.add_argument("--compressions", nargs="+", choices=COMPRESSIONS, default=list(COMPRESSIONS))
    return options.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(0 if run(parse()) else 1)
