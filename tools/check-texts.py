#!/usr/bin/env python3
"""Reads every text of the project.

Fails on paths of somebody's machine, on hosts of package registries and mirrors, and on files that a document names and that are not there.
Warns about Rust files that have become too long to read at once.
"""

import os
import re
import subprocess
import sys

LINES_MAX = 600
LOCK_SOURCE = "registry+https://github.com/rust-lang/crates.io-index"

# Written so that this file does not find itself.
FORBIDDEN = [
    (re.compile(r"(?<![\w./-])/(?:home|Users)/\w+|(?<![\w./-])/roo[t]/|(?<![\w.-])/wor[k]/"), "a path of one machine"),
    (
        re.compile(
            r"(?:index|static)\.crates[.]io|pypi[.]org|pythonhosted[.]org|registry\.npmjs[.]|proxy\.golang[.]|(?:deb|security|ftp)\.[\w.]*debian[.]org"
            r"|https?://[\w.-]*(?:registry|mirror|artifactory|nexus)[\w.-]*[/:]"
        ),
        "the host of a registry or a mirror",
    ),
]

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED_FILE = re.compile(r"`((?:crates|docs|fuzz|tools|bench|testdata|\.ci)/[\w./-]+)`")


def files():
    """The project's files: those that git knows or would take; all but what is built where there is no git."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if listed.returncode == 0:
        return sorted(name for name in listed.stdout.decode().split("\0") if name and os.path.isfile(name))
    found = []
    for directory, inner, names in os.walk("."):
        inner[:] = [name for name in inner if name not in ("target", ".git", "scratch")]
        found += [os.path.normpath(os.path.join(directory, name)) for name in names]
    return sorted(found)


def text_of(name):
    with open(name, "rb") as file:
        content = file.read()
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def forbidden(name, lines):
    for number, line in enumerate(lines, 1):
        for pattern, what in FORBIDDEN:
            for match in pattern.finditer(line):
                yield f"{name}:{number}: {what}: {match.group()}"


def foreign_sources(name, lines):
    for number, line in enumerate(lines, 1):
        if line.startswith("source = ") and line != f'source = "{LOCK_SOURCE}"':
            yield f"{name}:{number}: a crate that does not come from crates.io: {line}"


def broken_references(name, lines):
    """Links are relative to the document; files named in code spans are relative to the project."""
    directory = os.path.dirname(name)
    in_fence = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            in_fence = not in_fence
        if in_fence:
            continue
        links = [m for m in LINK.findall(line) if "://" not in m and not m.startswith("mailto:")]
        targets = [os.path.join(directory, link) for link in links] + NAMED_FILE.findall(line)
        for target in targets:
            if not os.path.exists(target):
                yield f"{name}:{number}: names {os.path.normpath(target)}, which is not there"


def main():
    problems, warnings = [], []
    for name in files():
        text = text_of(name)
        if text is None:
            continue
        lines = text.splitlines()
        problems += forbidden(name, lines)
        if os.path.basename(name) == "Cargo.lock":
            problems += foreign_sources(name, lines)
        if name.endswith(".md"):
            problems += broken_references(name, lines)
        if name.endswith(".rs") and len(lines) > LINES_MAX:
            warnings.append(f"warning: {name} has {len(lines)} lines, more than {LINES_MAX}: is one object coming to own everything?")
    for line in warnings + problems:
        print(line, file=sys.stderr)
    if problems:
        sys.exit(f"texts: {len(problems)} problems")
    print("texts: no path of a machine, no registry, no name of a file that is not there")


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    main()
