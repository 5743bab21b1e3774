#!/usr/bin/env bash
# `make fuzz`: builds the fuzz targets with a nightly compiler and the address sanitizer, and runs each for FUZZ_SECONDS (default 10),
# as many at once as there are cores. FUZZ names some of them; all otherwise. Fails when one crashed or did nothing.
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
# Looking for leaks needs rights that containers seldom have; that memory is bounded is asserted by the targets themselves.
export ASAN_OPTIONS=detect_leaks=0
artifacts=$build/artifacts
mkdir -p "$artifacts"

# What an input of a failure may have, in bytes, for it to stand in the summary.
told_bytes_max=1500

# tell_failure TARGET RESULT: what the summary says of a target that failed. Of a run on another machine often nothing else is kept: so the panic and,
# made smaller for half a minute, the input.
tell_failure() {
    local target=$1 directory=$work/$1 program=$build/$host/release/$1 input
    echo "fuzz: $target FAILED ($2)"
    { grep -aE -A 3 -m 1 'panicked at |ERROR: (AddressSanitizer|libFuzzer)' "$directory/log" || true; } | cut -c -600 | sed "s/^/fuzz: $target: /"
    input=$(sed -n 's/^.*Test unit written to \(.*\)$/\1/p' "$directory/log" | tail -n 1)
    [[ -r $input ]] || return 0
    TMPDIR=$directory/tmp "$program" -minimize_crash=1 -max_total_time=30 -timeout="$input_seconds_max" -rss_limit_mb="$memory_mib_max" \
        -detect_leaks=0 -exact_artifact_path="$input.small" "$input" >"$directory/small.log" 2>&1 </dev/null || true
    [[ ! -s $input.small ]] || input=$input.small
    echo "fuzz: $target: again with $program $input"
    if (($(stat -c %s "$input") <= told_bytes_max)); then
        echo "fuzz: $target: that input: echo $(base64 -w 0 "$input") | base64 -d"
    fi
}

# fuzz TARGET: one line of what it came to; $work/TARGET/runs has the number of runs, and $work/TARGET/failed is there when it failed.
fuzz() {
    local target=$1 directory=$work/$1 found result=0 runs seeds
    found=${FUZZ_CORPUS:-$directory/corpus}/$target
    mkdir -p "$directory/tmp" "$found"
    # The first directory is the one that is written to.
    TMPDIR=$directory/tmp "$build/$host/release/$target" "$found" "fuzz/corpus/$target" -max_total_time="$seconds" \
        -max_len="$input_bytes_max" -timeout="$input_seconds_max" -rss_limit_mb="$memory_mib_max" -detect_leaks=0 -print_final_stats=1 \
        -artifact_prefix="$artifacts/$target-" >"$directory/log" 2>&1 </dev/null || result=$?
    number() { sed -n "s/$1/\\1/p" "$directory/log" | tail -n 1 | grep . || echo 0; }
    runs=$(number '^stat::number_of_executed_units: *\(.*\)')
    seeds=$(find "fuzz/corpus/$target" -type f | wc -l)
    printf 'fuzz %-15s %10s runs  %7s/s  %3s seeds  coverage %5s -> %5s  %5s new inputs\n' "$target" "$runs" \
        "$(number '^stat::average_exec_per_sec: *\(.*\)')" "$seeds" "$(number '^#[0-9]*\tINITED cov: \([0-9]*\) .*')" \
        "$(number '^#[0-9]*.* cov: \([0-9]*\) .*')" "$(number '^stat::new_units_added: *\(.*\)')"
    echo "$runs" >"$directory/runs"
    # Running the seeds alone is no fuzzing.
    if ((result != 0 || runs <= 2 * seeds + 2)); then
        tell_failure "$target" "$result" >"$directory/failed"
        tail -n 40 "$directory/log" >&2
    fi
    # What lies in memory: the rest of the targets need it.
    rm -rf "$directory/corpus" "$directory/tmp"
}

cores=$(nproc)
for target in "${targets[@]}"; do
    while (($(jobs -rp | wc -l) >= cores)); do
        wait -n || true
    done
    fuzz "$target" &
done
wait

total=0
failed=0
for target in "${targets[@]}"; do
    runs=$(cat "$work/$target/runs")
    total=$((total + runs))
    [[ ! -e $work/$target/failed ]] || failed=$((failed + 1))
done
cat "$work"/*/failed 2>/dev/null || true
echo "fuzz: $total runs of ${#targets[@]} targets, $failed failed"
((failed == 0))
