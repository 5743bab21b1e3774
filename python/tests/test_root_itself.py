"""ROOT, the program itself, on a mount and by `root://`. In a process of its own, as it takes the signals and the XRootD client of whoever loads it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

import gate as xrootd

WRITE = """
import array, sys
import ROOT
file = ROOT.TFile.Open(sys.argv[1] + "/tree.root", "RECREATE")
tree = ROOT.TTree("tree", "tree")
number = array.array("d", [0.0])
tree.Branch("x", number, "x/D")
for at in range(200_000):
    number[0] = at / 2
    tree.Fill()
tree.Write()
file.Close()
"""

READ = """
import sys
import ROOT
for _ in range(3):
    file = ROOT.TFile.Open(sys.argv[1] + "/tree.root")
    tree = file.Get("tree")
    assert tree.GetEntries() == 200_000
    file.Close()
frame = ROOT.RDataFrame("tree", sys.argv[1] + "/tree.root")
assert frame.Sum("x").GetValue() == sum(at / 2 for at in range(200_000))
assert frame.Filter("x > 50000").Count().GetValue() == 99_999
frame.Snapshot("copy", sys.argv[1] + "/copy.root", "x")
assert ROOT.RDataFrame("copy", sys.argv[1] + "/copy.root").Max("x").GetValue() == 99_999.5
"""

UPDATE = """
import sys
import ROOT
for times in (1, 2):
    file = ROOT.TFile.Open(sys.argv[1] + "/tree.root", "UPDATE")
    histogram = ROOT.TH1D(f"histogram{times}", "", 10, 0, 10)
    histogram.Fill(times)
    histogram.Write()
    file.Close()
file = ROOT.TFile.Open(sys.argv[1] + "/tree.root")
assert [file.Get(f"histogram{times}").GetEntries() for times in (1, 2)] == [1, 1] and file.Get("tree").GetEntries() == 200_000
"""


@pytest.fixture(scope="module")
def root():
    xrootd.need(importlib.util.find_spec("ROOT") is not None, "ROOT (the Python package)")

    def run(script, where):
        ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script, where], env={**os.environ, **xrootd.QUICK}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


def test_root_writes_updates_and_reads_on_a_mount(root, directory, mount):
    where = f"{mount}{directory}"
    for script in (WRITE, READ, UPDATE):
        root(script, where)


def test_root_writes_and_reads_by_xrootd(root, files, directory, gate):
    # Of a server of its own machine ROOT takes the files to be its own, too: by this address it does not know it.
    where = f"{gate.url.replace('127.0.0.1', '127.0.0.2')}{directory}"
    for script in (WRITE, READ):
        root(script, where)
    assert files.stat(f"{directory}/tree.root").sealed and files.stat(f"{directory}/copy.root").sealed
