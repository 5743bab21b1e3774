"""Reads a file of a store by fsspec, or writes one of what a local file holds, in requests of a MiB.

client.py read HOST:PORT PATH
client.py write HOST:PORT PATH LOCAL
"""

import sys

from forebay.fs import ForebayFileSystem

REQUEST_BYTES = 1 << 20

what, address, path, *local = sys.argv[1:]
fs = ForebayFileSystem(*address.split(":"))
if what == "write":
    with open(local[0], "rb", buffering=0) as source, fs.open(path, "wb") as file:
        while block := source.read(REQUEST_BYTES):
            file.write(block)
else:
    total = 0
    with fs.open(path, "rb") as file:
        while block := file.read(REQUEST_BYTES):
            total += len(block)
    assert total == fs.size(path)
