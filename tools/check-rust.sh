#!/usr/bin/env bash
# Is the Rust of this machine new enough? An old cargo would only say that it does not know the edition.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
advice="Install Rust by rustup (https://rustup.rs), or bring it up to date with \`rustup update stable\`."

if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    echo "Forebay needs Rust $needed or newer, and there is no cargo in PATH. $advice" >&2
    echo "If you installed it just now: . \"\$HOME/.cargo/env\"" >&2
    exit 1
fi
if ! found=$(rustc --version); then
    echo "Forebay needs Rust $needed or newer, and rustc does not start. $advice" >&2
    exit 1
fi
version=$(cut -d ' ' -f 2 <<<"$found")
if [[ $(printf '%s\n' "$needed" "${version%%-*}" | sort -V | head -n 1) != "$needed" ]]; then
    echo "Forebay needs Rust $needed or newer, and $(command -v rustc) is version $version. $advice" >&2
    exit 1
fi
if ! command -v cc >/dev/null; then
    echo "Rust needs a C compiler to link with, and there is none: apt-get install build-essential" >&2
    exit 1
fi
