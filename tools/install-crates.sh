#!/usr/bin/env bash
# `make deps`: programs of crates.io that test the mount. Forebay itself needs none of them.
set -euo pipefail

programs=(
    pjdfstest@0.2.2 # what POSIX says of names, modes, owners and times
    fsx@0.3.2       # random operations on one file, of which each byte is checked
)

installed=$(cargo install --list)
for program in "${programs[@]}"; do
    name=${program%@*} version=${program#*@}
    if grep -qxF "$name v$version:" <<<"$installed"; then
        echo "$name $version is installed"
    else
        echo "installing $name $version"
        cargo install --locked --quiet "$program"
    fi
done
