#!/usr/bin/env python3
"""Keeps the dependencies between the crates of the workspace going one way.

    types <- format <- erasure, media <- engine <- store <- server
    types <- takeover; media, takeover <- ownership <- media-rados <- cli
    types <- protocol <- client <- c, mount, cli, bench
    types <- rawdata, client <- mover <- emulators, destinations <- cli
    xrdcl <- destinations
    types <- names, runs <- server, cli
    types <- telemetry <- server, mover, cli

What decides on drives knows nothing of the network, what talks to a server knows nothing of drives; only the
command line and the benchmarks have both. Every edge stands in this file: one that is not listed fails, and so does one
that is listed and not used.
"""

import json
import os
import subprocess
import sys

# crate: the crates of the workspace that it may use.
ALLOWED = {
    "types": [],
    "format": ["types"],
    "erasure": ["types"],
    "media": ["types"],
    "takeover": ["types"],
    "ownership": ["media", "takeover"],
    "media-rados": ["media", "ownership", "takeover", "types"],
    "engine": ["erasure", "format", "media", "types"],
    "store": ["engine", "format", "media", "types"],
    "protocol": ["types"],
    "server": ["engine", "names", "protocol", "runs", "store", "telemetry", "types"],
    "client": ["protocol", "types"],
    "rawdata": ["types"],
    "names": ["types"],
    "runs": ["types"],
    "telemetry": ["types"],
    "mount": ["client", "protocol", "types"],
    "c": ["client", "types"],
    "mover": ["client", "rawdata", "telemetry", "types"],
    "destinations": ["mover", "xrdcl"],
    "xrdcl": [],
    "emulators": ["client", "mover", "rawdata", "types"],
    "cli": ["client", "destinations", "emulators", "engine", "media", "media-rados", "mount", "mover", "names", "ownership", "rawdata", "runs", "server", "store", "takeover", "telemetry", "types"],
    "bench": ["client", "engine", "erasure", "format", "media", "mover", "rawdata", "store", "types"],
    # The simulator: every machine, and nothing that drives one. Nobody may use it.
    "sim": ["client", "engine", "format", "media", "media-rados", "mover", "protocol", "server", "types"],
}

# What its tests may use besides ([dev-dependencies]).
ALLOWED_IN_TESTS = {
    "server": ["client"],
    "c": ["server", "store"],
    "cli": ["format"],
}

# Outside crates that belong in one place: crate: where it may be used.
KEPT_IN = {
    "rusty_erasure": ["erasure"],
    "io-uring": ["media"],
    "mio": ["client", "server"],
    "axum": ["telemetry"],
    "prometheus-client": ["telemetry"],
    "tokio": ["destinations", "telemetry"],
    "hyper": ["destinations"],
    "object_store": ["destinations"],
    "fuser": ["mount"],
    "rusqlite": ["mover"],
}

# Mistakes that are made on purpose are compiled for the simulator alone.
PLANTED_ONLY_FOR = "sim"

# Crates that decide: no I/O, clock, threads or randomness, and so none of the crates that bring them.
MACHINES = ["types", "format", "erasure", "engine", "names", "runs", "protocol", "rawdata", "takeover"]
NOT_IN_MACHINES = ["axum", "getrandom", "io-uring", "libc", "mio", "rand", "rustix", "signal-hook", "tokio", "tracing"]

# Crates with such machines, some of them beside the modules that drive them: clippy keeps the calls out, by this one list.
WITH_MACHINES = [*MACHINES, "client", "mount", "mover", "server", "sim", "telemetry"]
BANNED_CALLS = "tools/machines.clippy.toml"

# What is foreign stays out of the product unless it is asked for.
NOT_BY_DEFAULT = ["forebay-media-rados", "forebay-xrdcl", "pyo3"]

THIS = "tools/check-dependencies.py"


def crates():
    """The workspace's packages by short name: that of their directory."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {package["manifest_path"].split("/")[-2]: package for package in metadata["packages"]}


def directory(crate):
    """Where a crate lies: the simulator is no part of the product and lies beside it."""
    return crate if crate == "sim" else f"crates/{crate}"


def dependencies(package, names, in_tests):
    """What a package depends on: crates of the workspace by short name, others by their own."""
    kinds = ["dev"] if in_tests else [None, "build"]
    found = (d["name"] for d in package["dependencies"] if d["kind"] in kinds)
    return {names.get(name, name) for name in found}


def problems_of(crate, used, allowed, names, where):
    inside = used & set(names.values())
    for other in sorted(inside - set(allowed.get(crate, []))):
        yield (
            f"{crate} -> {other}: {directory(crate)}/Cargo.toml names it in [{where}], and the list does not allow it. Move "
            f"what you need to a crate that both may use. If the edge is right, add it to {THIS} and to the picture in ARCHITECTURE.md"
        )
    for other in sorted(set(allowed.get(crate, [])) - inside):
        yield (
            f"{crate} -> {other}: the list allows it and [{where}] of {directory(crate)}/Cargo.toml does not use it. Take it out of {THIS}"
        )


def problems():
    packages = crates()
    names = {package["name"]: crate for crate, package in packages.items()}
    for crate in sorted(set(packages) - set(ALLOWED)):
        yield f"{crate}: a crate that the list does not know. Say in {THIS} what it may use"
    for crate in sorted((set(ALLOWED) | set(ALLOWED_IN_TESTS)) - set(packages)):
        yield f"{crate}: the list has it and there is no {directory(crate)}. Take it out of {THIS}"
    for crate in WITH_MACHINES:
        link = f"{directory(crate)}/clippy.toml"
        if not (os.path.exists(link) and os.path.samefile(link, BANNED_CALLS)):
            yield f"{crate}: {link} is no link to {BANNED_CALLS}, which keeps clock, threads, randomness, files and sockets out of it"
    for crate in sorted(set(packages) & set(ALLOWED)):
        package = packages[crate]
        used = dependencies(package, names, in_tests=False)
        yield from problems_of(crate, used, ALLOWED, names, "dependencies")
        only_in_tests = dependencies(package, names, in_tests=True) - used
        yield from problems_of(crate, only_in_tests, ALLOWED_IN_TESTS, names, "dev-dependencies")
        if crate != PLANTED_ONLY_FOR and any("planted" in d["features"] for d in package["dependencies"]):
            yield f"{crate}: it switches on `planted`, mistakes that are made on purpose. Only {PLANTED_ONLY_FOR} may"
        for other in sorted(used):
            if crate not in KEPT_IN.get(other, [crate]):
                where = " and ".join(KEPT_IN[other])
                yield f"{crate} -> {other}: only {where} may use it, so that it can be replaced in one place. Go through that crate"
            if crate in MACHINES and other in NOT_IN_MACHINES:
                yield f"{crate} -> {other}: {crate} decides and does no I/O, has no clock, threads or randomness. Pass what it needs as an argument"


def foreign_by_default():
    """What the `forebay` of a plain build has that it should not."""
    command = ["cargo", "tree", "--package", "forebay", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    tree = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    built = {line.split()[0] for line in tree.splitlines() if line}
    for name in sorted(built & set(NOT_BY_DEFAULT)):
        yield f"forebay -> {name}: it is built without being asked for. Put it behind a feature"


def main():
    found = [*problems(), *foreign_by_default()]
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        sys.exit(f"the direction of dependencies: {len(found)} problems")
    print("the direction of dependencies: every edge is allowed, every allowed edge is used")


if __name__ == "__main__":
    main()
