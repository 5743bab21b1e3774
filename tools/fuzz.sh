#!/usr/bin/env bash
# `make fuzz`: builds the fuzz targets with a nightly compiler and the address sanitizer, and runs each for FUZZ_SECONDS (default 10).
# FUZZ names some of them; all otherwise. Fails when one crashed or did nothing.
#
# With FUZZ_CORPUS a directory, what covers something new is kept there, in a directory for each target, and the next run begins with it.
# Cargo alone builds them: what the `cargo fuzz` command would add is three flags, and it takes longer to install than all of this to run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-10}
# libFuzzer takes 0 for ever.
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "FUZZ_SECONDS is \"$seconds\"; it must be a whole number of seconds, 1 or more" >&2; exit 1; }
# A message of the largest batch of fragments fits; longer inputs are slow and bring nothing new.
input_bytes_max=65536
# What one input may take: a decoder that hangs, or that takes what a length says, is found by these.
input_seconds_max=10
memory_mib_max=2048

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "make fuzz needs a nightly compiler beside the stable one, and there is none: \`make deps\` installs it, or" >&2
    echo "\`rustup toolchain install nightly --profile minimal\`." >&2
    exit 1
fi
if ! command -v c++ >/dev/null; then
    echo "make fuzz needs a C++ compiler for libFuzzer, and there is none: \`make deps\`, or apt-get install build-essential" >&2
    exit 1
fi

mapfile -t all < <(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"$|\1|p' fuzz/Cargo.toml)
targets=("${all[@]}")
if [[ -n ${FUZZ:-} ]]; then
    read -r -a targets <<<"$FUZZ"
fi
((${#targets[@]} > 0)) || { echo "there is no target in fuzz/Cargo.toml: nothing would be fuzzed" >&2; exit 1; }
for target in "${targets[@]}"; do
    [[ " ${all[*]} " == *" $target "* ]] || { echo "there is no target $target; there are ${all[*]}" >&2; exit 1; }
done

# Apart from what the stable compiler builds: other flags would build all of it anew each time. With a triple, so that what runs while
# building has no sanitizer.
build=${CARGO_TARGET_DIR:-target}/fuzz
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
locked=()
[[ ${CI:-} != true ]] || locked=(--locked)
RUSTFLAGS=$flags cargo +nightly build "${locked[@]}" --manifest-path fuzz/Cargo.toml --release --target "$host" --target-dir "$build" \
    "${targets[@]/#/--bin=}"

# Some targets write their input to a file, thousands of times a second: in memory, where there is such a directory.
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
# Looking for leaks needs rights that containers seldom have; that memory is bounded is asserted by the targets themselves.
export ASAN_OPTIONS=detect_leaks=0
artifacts=$build/artifacts
mkdir -p "$artifacts"

number() {
    sed -n "s/^stat::$1: *//p" "$work/log" | tail -n 1
}

failed=()
total=0
for target in "${targets[@]}"; do
    found=$work/found
    [[ -z ${FUZZ_CORPUS:-} ]] || found=$FUZZ_CORPUS/$target
    rm -rf "$work/found"
    mkdir -p "$found"
    # The first directory is the one that is written to.
    result=0
    "$build/$host/release/$target" "$found" "fuzz/corpus/$target" -max_total_time="$seconds" -max_len="$input_bytes_max" \
        -timeout="$input_seconds_max" -rss_limit_mb="$memory_mib_max" -detect_leaks=0 -print_final_stats=1 \
        -artifact_prefix="$artifacts/$target-" >"$work/log" 2>&1 </dev/null || result=$?
    runs=$(number number_of_executed_units)
    rate=$(number average_exec_per_sec)
    new=$(number new_units_added)
    seeds=$(find "fuzz/corpus/$target" -type f | wc -l)
    cover=$(sed -n 's/^#[0-9]*.* cov: \([0-9]*\) .*/\1/p' "$work/log" | tail -n 1)
    at_first=$(sed -n 's/^#[0-9]*\tINITED cov: \([0-9]*\) .*/\1/p' "$work/log" | tail -n 1)
    printf 'fuzz %-14s %9s runs  %7s/s  %3s seeds  coverage %5s -> %5s  %4s new inputs\n' \
        "$target" "${runs:-0}" "${rate:-0}" "$seeds" "${at_first:-0}" "${cover:-0}" "${new:-0}"
    total=$((total + ${runs:-0}))
    # Running the seeds alone is no fuzzing.
    if ((result != 0 || ${runs:-0} <= 2 * seeds + 2)); then
        failed+=("$target")
        tail -n 40 "$work/log" >&2
        echo "fuzz $target FAILED ($result): the input that it failed on, if there is one, is in $artifacts. Again with" >&2
        echo "$build/$host/release/$target $artifacts/$target-..." >&2
    fi
done

echo "fuzz: $total runs of ${#targets[@]} targets, ${#failed[@]} failed"
((${#failed[@]} == 0))
