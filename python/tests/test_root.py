"""ROOT files by uproot: written and read through `forebay://`."""

from __future__ import annotations

import os
import pathlib

import numpy
import pytest
import uproot

from servers import ROOT


def recorded(name: str) -> pathlib.Path:
    """A recorded file, where there are any."""
    directory = pathlib.Path(os.environ.get("FOREBAY_TESTDATA", ROOT.parent / "shared" / "data"))
    if not (directory / name).exists():
        pytest.skip("needs recorded detector files (FOREBAY_TESTDATA)")
    return directory / name


def test_a_tree_is_read_back(server, fs, directory):
    energy = numpy.random.default_rng(1).normal(size=100_000)
    url = f"{server.url}{directory}/tree.root"
    with uproot.recreate(url) as file:
        file.mktree("events", {"energy": "float64"})
        for part in numpy.split(energy, 10):
            file["events"].extend({"energy": part})
    assert fs.info(f"{directory}/tree.root")["sealed"]
    with uproot.open(url) as file:
        assert numpy.array_equal(file["events"]["energy"].array(library="np"), energy)


def test_an_rntuple_is_read_back_and_written_anew(server, fs, directory):
    url = f"{server.url}{directory}/ntuple.root"
    for seed in (1, 2):
        columns = {"px": numpy.random.default_rng(seed).normal(size=50_000), "is_muon": numpy.arange(50_000, dtype="int32") % seed}
        with uproot.recreate(url) as file:
            ntuple = file.mkrntuple("events", {"px": "float64", "is_muon": "int32"})
            for start in range(0, 50_000, 10_000):
                ntuple.extend({name: column[start : start + 10_000] for name, column in columns.items()})
        with uproot.open(url) as file:
            found = file["events"].arrays(library="np")
        assert all(numpy.array_equal(found[name], column) for name, column in columns.items())
        assert fs.info(f"{directory}/ntuple.root")["sealed"]
    assert fs.ls(directory, detail=False) == [f"{directory}/ntuple.root"], "the first one gave its name up in one step"


def test_a_file_that_uproot_did_not_finish_is_not_sealed(server, fs, directory):
    with pytest.raises(KeyError), uproot.recreate(f"{server.url}{directory}/half.root") as file:
        file.mkrntuple("events", {"px": "float64"}).extend({"px": numpy.zeros(10)})
        raise KeyError("the analysis failed")
    assert not fs.info(f"{directory}/half.root")["sealed"]


def test_a_file_that_is_there_is_not_created(server, directory):
    url = f"{server.url}{directory}/there.root"
    with uproot.create(url) as file:
        file["text"] = "first"
    with pytest.raises(OSError):
        uproot.create(url)
    with pytest.raises(OSError, match="sealed"):
        with uproot.update(url) as file:
            file["more"] = "second"
    with uproot.open(url) as file:
        assert file["text"] == "first"


def test_recorded_muons_make_the_same_histogram_as_from_the_local_file(server, fs, directory):
    local = recorded("columnar/uproot-Zmumu.root")
    fs.put_file(str(local), f"{directory}/muons.root")
    masses = []
    for where in (str(local), f"{server.url}{directory}/muons.root"):
        with uproot.open(where) as file:
            masses.append(file["events"]["M"].array(library="np"))
    assert len(masses[0]) == 2304 and numpy.array_equal(*masses)


def test_a_recorded_rntuple_is_read_through_the_store(server, fs, directory):
    local = recorded("columnar/Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root")
    fs.put_file(str(local), f"{directory}/muons.root")
    with uproot.open(f"{server.url}{directory}/muons.root") as file:
        ntuple = file["Events"]
        assert ntuple.num_entries == 1000
        muons = ntuple.arrays(["nMuon"])["nMuon"]
    assert int(numpy.sum(numpy.asarray(muons) == 2)) == 554, "events with two muons"
