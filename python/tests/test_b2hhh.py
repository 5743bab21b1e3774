"""The worked example, small, with each door that is there."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import numpy
import pytest

import forebay
from servers import ROOT

sys.path.insert(0, str(ROOT / "python" / "examples"))
import b2hhh  # noqa: E402


def run(server, directory, out, *arguments):
    options = b2hhh.parse(["--server", server.address, "--directory", directory, "--out", str(out), *arguments])
    same = b2hhh.run(options)
    return same, json.loads((out / "b2hhh.json").read_text())


def test_the_native_client_and_fsspec_give_the_histogram_of_the_local_file(server, files, directory, tmp_path):
    same, table = run(server, directory, tmp_path / "out", "--entries", "30000")
    assert same and table["same"] and len(table["rows"]) == 8
    assert {(row["page_kib"], row["compression"]) for row in table["rows"]} == {
        (kib, compression) for kib in (64, 512, 1024, 4096) for compression in ("none", "zstd")
    }
    for row in table["rows"]:
        assert row["native_same"] and row["fsspec_same"]
        assert files.stat(row["path"]).sealed
    assert 1000 < table["passed"] < 30_000, "the cuts take some and leave some"
    assert b"<svg" in (tmp_path / "out" / "b2hhh.svg").read_bytes()


def test_a_mount_gives_the_histogram_of_the_local_file(server, directory, mount, tmp_path):
    same, table = run(server, directory, tmp_path / "out", "--entries", "30000", "--page-bytes", "65536", "--mount", str(mount))
    assert same and len(table["rows"]) == 2 and all(row["mount_same"] for row in table["rows"])


def test_a_histogram_that_differs_is_noticed(server, directory, tmp_path, monkeypatch):
    def changed(source):
        columns = read(source)
        if str(source).startswith("forebay://"):
            columns["H1_PX"] = columns["H1_PX"] * 1.001
        return columns

    read = b2hhh.read
    monkeypatch.setattr(b2hhh, "read", changed)
    same, table = run(server, directory, tmp_path, "--entries", "20000", "--page-bytes", "65536", "--compressions", "none")
    assert not same and not table["same"]
    assert table["rows"][0]["native_same"] and not table["rows"][0]["fsspec_same"]


def test_the_mass_of_three_kaons_at_rest_is_theirs():
    assert numpy.allclose(b2hhh._mass(numpy.zeros((3, 3, 1))), 3 * b2hhh.KAON_MEV)


def test_recorded_decays_pass_all_cuts(server, directory, tmp_path):
    data = pathlib.Path(os.environ.get("FOREBAY_TESTDATA", ROOT.parent / "shared" / "data"))
    source = data / "columnar" / "PhaseSpaceSimulation.root"
    if not source.exists():
        pytest.skip("needs recorded detector files (FOREBAY_TESTDATA)")
    columns = b2hhh.load(source)
    assert all(not columns[f"{hadron}_isMuon"].any() for hadron in b2hhh.HADRONS)
    same, table = run(server, directory, tmp_path, "--input", str(source), "--page-bytes", "65536", "1048576")
    assert same and table["entries"] == 50_000 and table["passed"] > 0


def test_where_no_server_is_the_example_says_so(tmp_path):
    with pytest.raises(forebay.NobodyListens):
        b2hhh.run(b2hhh.parse(["--server", "127.0.0.1:1", "--out", str(tmp_path), "--entries", "10"]))
