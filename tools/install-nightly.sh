#!/usr/bin/env bash
# `make deps`: the nightly compiler that the fuzz targets are built with, beside the stable one. Nothing else uses it.
set -euo pipefail

if cargo +nightly --version >/dev/null 2>&1; then
    echo "a nightly compiler is installed: $(rustc +nightly --version)"
    exit 0
fi
if ! command -v rustup >/dev/null; then
    echo "A nightly compiler, which \`make fuzz\` needs, is installed by rustup, and there is none. Install Rust by rustup (https://rustup.rs)." >&2
    exit 1
fi
echo "installing a nightly compiler"
rustup toolchain install nightly --profile minimal --no-self-update
