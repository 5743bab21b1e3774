"""ROOT files read by `root://`, through a stock XRootD server in front of the store."""

from __future__ import annotations

import numpy
import uproot

from test_b2hhh import run
from test_root import recorded


def test_uproot_reads_by_root_what_was_written_to_the_store(server, directory, gate):
    energy = numpy.random.default_rng(3).normal(size=200_000)
    path = f"{directory}/tree.root"
    with uproot.recreate(f"{server.url}{path}") as file:
        file.mktree("events", {"energy": "float64"})
        for part in numpy.split(energy, 20):
            file["events"].extend({"energy": part})
    with uproot.open(f"{gate.url}{path}") as file:
        assert numpy.array_equal(file["events"]["energy"].array(library="np"), energy)
        # A part in the middle, of some baskets alone.
        assert numpy.array_equal(file["events"]["energy"].array(library="np", entry_start=95_000, entry_stop=115_000), energy[95_000:115_000])


def test_recorded_muons_are_the_same_by_root(server, fs, directory, gate):
    local = recorded("columnar/uproot-Zmumu.root")
    fs.put_file(str(local), f"{directory}/muons.root")
    masses = []
    for where in (str(local), f"{gate.url}{directory}/muons.root"):
        with uproot.open(where) as file:
            masses.append(file["events"]["M"].array(library="np"))
    assert len(masses[0]) == 2304 and numpy.array_equal(*masses)


def test_the_b2hhh_example_gives_the_same_histogram_by_root(server, directory, gate, tmp_path):
    same, table = run(server, directory, tmp_path, "--entries", "30000", "--page-bytes", "65536", "1048576", "--root-url", gate.url)
    assert same and len(table["rows"]) == 4 and all(row["root_same"] for row in table["rows"])
