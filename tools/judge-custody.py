#!/usr/bin/env python3
"""Judges a mover by what lies at source and destinations, and by nothing that it says itself.

    judge-custody.py files  --put DIR --source DIR --destination DIR [--destination DIR ...] [--archives] [--sidecars] [--registered FILE] [--memory FILE] [--all]
    judge-custody.py events --put DIR --server ADDRESS --forebay PROGRAM --destination DIR [--destination DIR ...] [--all]

It shares no code with what it judges: files are compared by length and SHA-256, archives are read by Python, events by the layout of FASER's raw format and compared byte by byte.

`--put` has a copy of everything that was ever put into the source. Of files: under the same names. Of events: in files below a directory for each
stream that they were accepted into.

Always: what the source has let go of is whole at every destination, nothing is there twice, and nothing is there that nobody put. With --all, when
nothing is on its way any more: everything is there, the source has let go of everything, and no temporary file is left. Exit code 1 and a line for each fault else.
A mover of files may run meanwhile, one of events must not: the store is asked after the directories were read.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import zlib

# By what a mover knows a directory again.
MARK = ".forebay-place"
# Of the events that are not everywhere yet, so many are read from the store.
SAMPLE = 12


class Judge:
    """Faults, and what was looked at."""

    def __init__(self):
        self.faults = []
        self.counts = collections.Counter()

    def fault(self, text):
        self.faults.append(text)

    def close(self):
        for fault in self.faults[:50]:
            print(f"judge: {fault}", file=sys.stderr)
        print(json.dumps({"faults": len(self.faults), **self.counts}))
        return 1 if self.faults else 0


def sum_of(content):
    """What tells one content from another."""
    return [len(content), hashlib.sha256(content).hexdigest()]


def whole(path):
    return sum_of(path.read_bytes())


def bytes_and_adler32(path):
    content = path.read_bytes()
    return [len(content), f"{zlib.adler32(content):08x}"]


class Sums:
    """What files hold. With a memory none is read again that was not touched since; but at the end all are."""

    def __init__(self, memory, forgets):
        self.memory, self.known, self.seen = memory, {}, {}
        if memory is not None and memory.exists() and not forgets:
            self.known = json.loads(memory.read_bytes())

    def of(self, path, read=None):
        read = read or whole
        stat, key = path.stat(), f"{read.__name__} {path}"
        touched = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        known = self.known.get(key)
        self.seen[key] = known if known and known[0] == touched else [touched, read(path)]
        return self.seen[key][1]

    def keep(self):
        if self.memory is not None:
            self.memory.write_text(json.dumps(self.seen), encoding="utf-8")


def names_below(root):
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != MARK)
    return {path.relative_to(root).as_posix() for path in paths}


def is_hidden(name):
    return name.rsplit("/", 1)[-1].startswith(".")


# Files


def parts_of(path):
    with tarfile.open(path) as archive:
        return [[member.name, sum_of(archive.extractfile(member).read())] for member in archive.getmembers()]


def files_at(judge, root, arguments, sums):
    """What is at a destination under names that last, by the name that it had at the source."""
    there = {}
    for name in sorted(names_below(root) if root.exists() else []):
        if is_hidden(name) or arguments.sidecars and name.endswith(".json"):
            continue
        parts = sums.of(root / name, parts_of) if arguments.archives else [[name, sums.of(root / name)]]
        for part, content in parts:
            if part in there:
                judge.fault(f"{part} is twice at {root}")
            there[part] = content
    return there


def judge_source(judge, arguments, put, sums):
    """The names that the source has let go of."""
    let_go = set()
    for name, content in put.items():
        there, copied = arguments.source / name, arguments.source / (name + ".copied")
        # It is renamed in one step: it has one of the two names at any time.
        if there.exists():
            if arguments.all:
                judge.fault(f"{name} was not let go of")
            continue
        let_go.add(name)
        if not copied.exists() or sums.of(copied) != content:
            judge.fault(f"{name} was let go of, and its renamed original is gone or another one")
    return let_go


def judge_sidecar(judge, root, name, registered, sums):
    path = root / (name + ".json")
    if not path.is_file():
        judge.fault(f"{name} was let go of and has no sidecar at {root}")
        return
    said = json.loads(path.read_bytes())
    if [said["bytes"], said["adler32"]] != sums.of(root / name, bytes_and_adler32):
        judge.fault(f"the sidecar of {name} at {root} tells of another file: {said}")
    if registered is not None and registered.get(name) != said:
        judge.fault(f"{name} was let go of and is not registered with what its sidecar says: {registered.get(name)}")


def registrations(judge, path):
    if path is None:
        return None
    named = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        if said["name"] in named:
            judge.fault(f"{said['name']} is registered twice")
        named[said["name"]] = said
    return named


def judge_files(judge, arguments):
    sums = Sums(arguments.memory, arguments.all)
    put = {name: sums.of(arguments.put / name) for name in names_below(arguments.put)}
    # First the source, then the destinations: what it lets go of between the two looks the next one judges.
    let_go = judge_source(judge, arguments, put, sums)
    registered = registrations(judge, arguments.registered)
    for root in arguments.destination:
        there = files_at(judge, root, arguments, sums)
        for name in sorted(let_go):
            if there.get(name) != put[name]:
                judge.fault(f"{name} was let go of and is not whole at {root}: {there.get(name)}, and was put as {put[name]}")
            elif arguments.sidecars:
                judge_sidecar(judge, root, name, registered, sums)
        for name in sorted(there.keys() - put.keys()):
            judge.fault(f"{name} is at {root}, and nobody put it")
        if arguments.all:
            at_end(judge, root, put.keys() - there.keys())
    if arguments.all and registered is not None and registered.keys() != put.keys():
        judge.fault(f"{len(registered)} files are registered, and {len(put)} were put")
    judge.counts.update(put=len(put), let_go=len(let_go))
    sums.keep()


def at_end(judge, root, missing):
    for name in sorted(missing):
        judge.fault(f"{name} is not at {root}")
    for name in sorted(filter(is_hidden, names_below(root) if root.exists() else [])):
        judge.fault(f"{name} lies about at {root}")


# Events


def events_in(path):
    """Run, event number and bytes of each event of a FASER file."""
    content = path.read_bytes()
    at = 0
    while at < len(content):
        if content[at] != 0xBB or len(content) - at < 44:
            raise ValueError(f"no event at byte {at} of {path}")
        header_bytes, payload_bytes = struct.unpack_from("<HI", content, at + 6)
        run = int.from_bytes(content[at + 13 : at + 16], "little")
        (event,) = struct.unpack_from("<Q", content, at + 16)
        end = at + header_bytes + payload_bytes
        if end > len(content):
            raise ValueError(f"{path} ends within the event at byte {at}")
        yield run, event, content[at:end]
        at = end


def fragments_of(content):
    """The fragments of an event by their sources; those of one source lie one behind the other in the store."""
    fragments, at = collections.defaultdict(bytes), struct.unpack_from("<H", content, 6)[0]
    for _ in range(content[12]):
        header_bytes, payload_bytes, source = struct.unpack_from("<HII", content, at + 6)
        end = at + header_bytes + payload_bytes
        fragments[source] += content[at:end]
        at = end
    return fragments


def events_put(root):
    """All events by run and number: what each is, and the streams that it was accepted into."""
    contents, streams = {}, collections.defaultdict(set)
    for name in names_below(root):
        for run, event, content in events_in(root / name):
            contents[run, event] = content
            streams[run, event].add(name.split("/", 1)[0])
    return contents, streams


def judge_file(judge, path, stream, put, there):
    """One file of a stream: `there` are the events that were met in it before."""
    contents, streams = put
    last = None
    for run, event, content in events_in(path):
        key, what = (run, event), f"{run}/{event} in {path}"
        if stream not in streams.get(key, ()):
            judge.fault(f"{what} was never accepted into {stream}")
        elif contents[key] != content:
            judge.fault(f"{what} is not what was put")
        if key in there:
            judge.fault(f"{what} is below {stream} twice")
        if last is not None and (run != last[0] or key <= last):
            judge.fault(f"{what} stands behind {last[0]}/{last[1]}")
        there.add(key)
        last = key


def judge_directory(judge, root, put):
    """Which events are below a directory, by stream."""
    there = collections.defaultdict(set)
    for name in sorted(names_below(root) if root.exists() else []):
        if is_hidden(name) or name.endswith(".json"):
            continue
        stream = name.split("/", 1)[0]
        try:
            judge_file(judge, root / name, stream, put, there[stream])
        except (ValueError, IndexError, struct.error) as error:
            judge.fault(f"{name} at {root}: {error}")
    return there


def ask(arguments, *words):
    command = [arguments.forebay, *words, "--server", arguments.server]
    return subprocess.run(command, capture_output=True, check=False)


def judge_store(judge, arguments, contents, whole):
    """What the store has forgotten is whole everywhere, and what is not, it still gives."""
    said = ask(arguments, "status", "--json")
    if said.returncode != 0:
        judge.fault(f"the store does not answer: {said.stderr.decode()}")
        return
    finished = sum(lane["events_finished"] for lane in json.loads(said.stdout)["lanes"])
    judge.counts.update(finished=finished)
    if finished > len(whole):
        judge.fault(f"the store has forgotten {finished} events, and {len(whole)} are whole at every destination")
    if arguments.all and finished != len(contents):
        judge.fault(f"the store has forgotten {finished} events of {len(contents)}")
    left = sorted(contents.keys() - whole)
    for run, event in random.Random(len(left)).sample(left, min(SAMPLE, len(left))):
        for source, expected in fragments_of(contents[run, event]).items():
            got = ask(arguments, "get", f"{run}/{event}/{source}", "-")
            if got.returncode != 0 or got.stdout != expected:
                judge.fault(f"{run}/{event} is not everywhere yet, and the store does not give its source {source}: {got.stderr.decode()}")
        judge.counts["read_from_store"] += 1


def judge_events(judge, arguments):
    contents, streams = put = events_put(arguments.put)
    by_root = [(root, judge_directory(judge, root, put)) for root in arguments.destination]

    def lacks(key):
        return [f"{key[0]}/{key[1]} of {stream}" for _, there in by_root for stream in streams[key] if key not in there[stream]]

    whole = {key for key in contents if not lacks(key)}
    judge_store(judge, arguments, contents, whole)
    if arguments.all:
        for root, _ in by_root:
            at_end(judge, root, [missing for key in contents for missing in lacks(key)])
    judge.counts.update(put=len(contents), whole=len(whole))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("files", "events"):
        one = kinds.add_parser(kind)
        one.add_argument("--put", required=True, type=pathlib.Path, help="a copy of everything that was put")
        one.add_argument("--destination", required=True, action="append", type=pathlib.Path)
        one.add_argument("--all", action="store_true", help="nothing is on its way any more")
    kinds.choices["files"].add_argument("--source", required=True, type=pathlib.Path)
    kinds.choices["files"].add_argument("--memory", type=pathlib.Path, help="a file that keeps what was read until the next look")
    kinds.choices["files"].add_argument("--archives", action="store_true", help="files were merged by tar")
    kinds.choices["files"].add_argument("--sidecars", action="store_true", help="each file has a sidecar")
    kinds.choices["files"].add_argument("--registered", type=pathlib.Path, help="what was registered, a line of JSON for each file")
    kinds.choices["events"].add_argument("--server", required=True, help="address of the store")
    kinds.choices["events"].add_argument("--forebay", required=True, help="the program that reads from it")
    return parser.parse_args()


def main():
    arguments, judge = parse(), Judge()
    {"files": judge_files, "events": judge_events}[arguments.kind](judge, arguments)
    return judge.close()


if __name__ == "__main__":
    sys.exit(main())
