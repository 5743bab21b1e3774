"""What XRootD's Python bindings do to a store: `bindings.py root://HOST:PORT`. It ends with an error where something is not so."""

import os
import sys

# A client that asks no name server for long.
os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"

from XRootD import client
from XRootD.client.flags import DirListFlags, MkDirFlags, OpenFlags, QueryCode, StatInfoFlags

URL = sys.argv[1]
NOT_FOUND, IS_DIRECTORY, EXISTS = 3011, 3016, 3018
BYTES = bytes(at * 7 % 251 for at in range(1_000_003))


def good(answer):
    status, value = answer
    assert status.ok, status.message
    return value


def refused(answer, errno):
    status, _ = answer
    assert not status.ok and status.errno == errno, (status.errno, status.message)


def opened(path, flags=OpenFlags.READ):
    file = client.File()
    good(file.open(URL + "/" + path, flags))
    return file


files = client.FileSystem(URL)
good(files.mkdir("/bindings/deeper", MkDirFlags.MAKEPATH))

# In pieces, out of order, and cut.
file = opened("/bindings/file", OpenFlags.NEW)
for begin in [*range(300_000, len(BYTES), 100_000), 0, 200_000, 100_000]:
    good(file.write(BYTES[begin : begin + 100_000], offset=begin))
good(file.write(b"too much", offset=len(BYTES)))
good(file.sync())
good(file.truncate(len(BYTES)))
assert good(file.stat(force=True)).size == len(BYTES)
assert b"oss.free=" in good(files.query(QueryCode.SPACE, "/"))
good(file.close())

file = opened("/bindings/file")
assert good(file.read()) == BYTES
assert good(file.read(offset=999_990, size=100)) == BYTES[999_990:]
assert good(file.read(offset=len(BYTES), size=10)) == b"" and good(file.read(offset=1 << 40, size=10)) == b""
assert b"".join(file.readchunks(offset=0, chunksize=77_777)) == BYTES

# Vectors: many small ones, in any order and over each other, up to the last byte.
places = [(at * 7919 % 990_000, 1 + at % 977) for at in range(900)] + [(len(BYTES) - 10, 10), (0, 100_000)]
chunks = good(file.vector_read(places)).chunks
assert len(chunks) == len(places)
assert all(chunk.buffer == BYTES[offset : offset + size] for chunk, (offset, size) in zip(chunks, places))
# One that goes beyond the end is no shorter one.
status, _ = file.vector_read([(0, 10), (len(BYTES) - 5, 10)])
assert not status.ok, "a vector beyond the end"
assert good(file.read(offset=0, size=10)) == BYTES[:10], "and the file is still open"
good(file.close())

known = good(files.stat("/bindings/file"))
assert known.size == len(BYTES) and not known.flags & StatInfoFlags.IS_DIR
assert good(files.stat("/bindings")).flags & StatInfoFlags.IS_DIR
listed = good(files.dirlist("/bindings", DirListFlags.STAT))
assert {entry.name: (entry.statinfo.size, bool(entry.statinfo.flags & StatInfoFlags.IS_DIR)) for entry in listed if entry.name == "file"} == {
    "file": (len(BYTES), False)
}
assert {entry.name for entry in listed} == {"file", "deeper"}

# What is refused has the number of what it is.
refused(client.File().open(URL + "//bindings/nothing", OpenFlags.READ), NOT_FOUND)
refused(client.File().open(URL + "//bindings/file", OpenFlags.NEW), EXISTS)
refused(client.File().open(URL + "//bindings/deeper", OpenFlags.READ), IS_DIRECTORY)
refused(files.stat("/nowhere"), NOT_FOUND)
refused(files.dirlist("/nowhere"), NOT_FOUND)
for wrong in ("/bindings/../file", "/bindings/./file", "/bindings/" + "n" * 256):
    status, _ = client.File().open(URL + "/" + wrong, OpenFlags.NEW)
    assert not status.ok, wrong
status, _ = client.File().open(URL + "//bindings/file", OpenFlags.UPDATE)
assert not status.ok and "not permitted" in status.message, status.message

# One that is closed with less than its client announced, as a copy does that failed.
file = opened("/bindings/part?oss.asize=100", OpenFlags.NEW)
good(file.write(b"a part"))
status, _ = file.close()
assert not status.ok, "a part is not taken for all of it"
status, _ = files.query(QueryCode.CHECKSUM, "/bindings/part")
assert not status.ok and "text file busy" in status.message, status.message
# Nor one that is opened again, as nobody knows then whether its client closed it or went away.
file = opened("/bindings/part", OpenFlags.UPDATE)
good(file.write(b" and more", offset=6))
good(file.close())
assert good(opened("/bindings/part").read()) == b"a part and more"
status, _ = files.query(QueryCode.CHECKSUM, "/bindings/part")
assert not status.ok and "text file busy" in status.message, status.message
good(files.rm("/bindings/part"))

# Copied by the bindings' own copy, with the sums of both sides compared.
process = client.CopyProcess()
process.add_job(URL + "//bindings/file", URL + "//bindings/copied", checksummode="end2end", checksumtype="adler32")
good((process.prepare(), None))
good(process.run())
assert good(opened("/bindings/copied").read()) == BYTES
good(files.mv("/bindings/copied", "/bindings/moved"))
good(files.rm("/bindings/moved"))
refused(files.rm("/bindings/moved"), NOT_FOUND)
print("all is as it should be")
