"""Clients of one file that read at different places while it is replaced: `together.py URL OLD OTHER_URL NEW`. It ends with an error where something is not so."""

import os
import subprocess
import sys

# A client that asks no name server for long.
os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"

from XRootD import client
from XRootD.client.flags import OpenFlags

URL, OLD, OTHER_URL, NEW = sys.argv[1:]
BYTES = open(OLD, "rb").read()
STEP = 700_000


def good(answer):
    status, value = answer
    assert status.ok, status.message
    return value


def opened():
    file = client.File()
    good(file.open(URL, OpenFlags.READ))
    return file


def read_on(file, place):
    """The place behind what was read there."""
    assert good(file.read(offset=place, size=STEP)) == BYTES[place : place + STEP], place
    return min(place + STEP, len(BYTES))


# Both read on, one after the other, at places of their own. A server replaces nothing that it has open, but another one does.
first, second = opened(), opened()
places = [0, 5_000_000]
for _ in range(3):
    places = [read_on(file, place) for file, place in zip((first, second), places)]
subprocess.run(["xrdcp", "--nopbar", "--silent", "-f", NEW, OTHER_URL], check=True)
# Readers that are made only now, and those that are there, are of the file that was opened.
third = [9_000_000, 2_500_000, 7_777_777]
while places[0] < len(BYTES) or third[0] < len(BYTES):
    places = [read_on(file, place) for file, place in zip((first, second), places)]
    third = [read_on(file, place) for file, place in zip((first, second, first), third)]
for file in (first, second):
    assert good(file.stat(force=True)).size == len(BYTES)
    good(file.close())
# Who opens it when nobody reads the old one any more has the new one.
assert good(opened().read()) == open(NEW, "rb").read()
print("all is as it should be")
