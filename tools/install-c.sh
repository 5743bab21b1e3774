#!/usr/bin/env bash
# `make install-c`: the library for C and C++ with its headers, and what pkg-config and CMake need to find it, below PREFIX (DESTDIR is put before it).
# FOREBAY_C_LIBRARIES names a directory with libraries that are built already; otherwise they are built here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=${PREFIX:-/usr/local}
[[ $prefix == /* ]] || { echo "PREFIX=$prefix is no absolute path; nothing was installed" >&2; exit 2; }
root=${DESTDIR:-}$prefix

libraries=${FOREBAY_C_LIBRARIES:-}
if [[ -z $libraries ]]; then
    locked=()
    [[ ${CI:-} != true ]] || locked=(--locked)
    cargo build "${locked[@]}" --release -p forebay-c
    libraries=${CARGO_TARGET_DIR:-target}/release
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"/\1/p' Cargo.toml)
[[ -n $version ]] || { echo "Cargo.toml does not say a version; nothing was installed" >&2; exit 1; }

fill() {
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "$1" >"$2"
}

install -d "$root/include" "$root/lib/pkgconfig" "$root/lib/cmake/forebay"
install -m 644 crates/c/include/forebay.h crates/c/include/forebay.hpp crates/c/include/forebay_runs.hpp "$root/include/"
install -m 755 "$libraries/libforebay.so" "$root/lib/libforebay.so.$version"
install -m 644 "$libraries/libforebay.a" "$root/lib/libforebay.a"
# Programs are linked with the first name, and ask for the second one, of the ABI, when they start.
ln -sf libforebay.so.0 "$root/lib/libforebay.so"
ln -sf "libforebay.so.$version" "$root/lib/libforebay.so.0"
fill crates/c/forebay.pc.in "$root/lib/pkgconfig/forebay.pc"
for file in forebayConfig forebayConfigVersion; do
    fill "crates/c/cmake/$file.cmake.in" "$root/lib/cmake/forebay/$file.cmake"
done
echo "libforebay $version is in $root"
