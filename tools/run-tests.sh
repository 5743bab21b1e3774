#!/usr/bin/env bash
# Runs `cargo test` with the arguments given, shows all that it shows and what the tests print, and ends with what was run and what
# was skipped for want of something, which is easily lost in the middle.
set -uo pipefail

# Many tests expect a panic: of each, the place and the message are enough, also of one that nobody expected.
export RUST_BACKTRACE=0

colour=never
[[ -t 1 ]] && colour=always

passed=0 failed=0 ignored=0 binaries=0
declare -A skipped=()
declare -A source_of=()
failures=() binary="" in_failures= output_of="" output_lines=0

# Of each test that failed, so much of what it printed about it stands in the summary too: of a run on another machine often nothing else is kept.
TOLD_LINES=12
TOLD_CHARACTERS=600

# From the first panic on: what a test prints before it is long, and stands above.
tell_output() {
    if [[ $output_lines == -1 && $1 == *" panicked at "* ]]; then
        output_lines=0
    fi
    if ((output_lines >= 0 && output_lines < TOLD_LINES)) && [[ -n $1 ]]; then
        failures+=("$output_of: ${1:0:TOLD_CHARACTERS}")
        ((output_lines += 1))
    fi
}

# What selects the tests of one source file of a package.
selection() {
    local name=${2#tests/}
    case $2 in
        tests/*) echo "-p $1 --test ${name%%[./]*}" ;;
        src/lib.rs) echo "-p $1 --lib" ;;
        *) echo "-p $1 --bins" ;;
    esac
}

count() {
    local line=$1
    if [[ $line =~ Running[^\ ]*\ (unittests\ )?([^\ ]+)\ \(.*/([^/]+)\) ]]; then
        source_of[${BASH_REMATCH[3]}]=${BASH_REMATCH[2]}
    elif [[ $line =~ ^"     Tests of "(.*)": "(.*)$ ]]; then
        binary=$(selection "${BASH_REMATCH[1]}" "${source_of[${BASH_REMATCH[2]}]:-}")
    elif [[ $line =~ ^"     Ended with "([0-9]+)$ ]]; then
        failures+=("cargo test $binary ended with ${BASH_REMATCH[1]}")
    elif [[ $line =~ Doc-tests[^\ ]*\ ([a-z_]+) ]]; then
        binary="documentation of ${BASH_REMATCH[1]}"
    elif [[ $line == "failures:" ]]; then
        in_failures=1 output_of=""
    elif [[ -n $in_failures && $line =~ ^"---- "(.*)" stdout ----"$ ]]; then
        output_of=${BASH_REMATCH[1]} output_lines=-1
    elif [[ -n $output_of ]]; then
        tell_output "$line"
    elif [[ -n $in_failures && $line == "    "[^[:space:]]* ]]; then
        failures+=("${line#    } ($binary)")
    elif [[ $line =~ ^\ +\`(-.*)\`$ ]]; then
        failures+=("cargo test ${BASH_REMATCH[1]}")
    elif [[ -n $line ]]; then
        in_failures=
    fi
    if [[ $line =~ "test result:".*\ ([0-9]+)\ passed\;\ ([0-9]+)\ failed\;\ ([0-9]+)\ ignored ]]; then
        ((binaries += 1, passed += BASH_REMATCH[1], failed += BASH_REMATCH[2], ignored += BASH_REMATCH[3]))
    elif [[ $line =~ ^"skipped: needs "(.*) ]]; then
        skipped[${BASH_REMATCH[1]}]=$((${skipped[${BASH_REMATCH[1]}]:-0} + 1))
    fi
}

summary() {
    local needs
    echo
    echo "tests: $passed passed, $failed failed, $ignored ignored, in $binaries binaries"
    for needs in "${!skipped[@]}"; do
        echo "skipped ${skipped[$needs]} x: needs $needs"
    done
    ((${#failures[@]} == 0)) || printf 'failed: %s\n' "${failures[@]}"
}

# With --show-output libtest lists the names of all successes once more, and a heading for each that printed something. Left out are the names,
# and what a success printed that met the panics it expects, or came from proptest alone: whoever looks for a failure would find these first.
filter() {
    local line in_successes='' section=''
    trap '' INT TERM
    while IFS= read -r line; do
        count "$line"
        if [[ $line == "successes:" ]]; then
            in_successes=1
        elif [[ -n $in_successes && ($line == "failures:" || $line == "test result: "*) ]]; then
            tell_success "$section"
            in_successes='' section=''
            printf '%s\n' "$line"
        elif [[ -z $in_successes ]]; then
            printf '%s\n' "$line"
        elif [[ $line == "---- "* ]]; then
            tell_success "$section"
            section=$line
        elif [[ -n $section && -n $line && $line != "    "[a-z]* && $line != "proptest: FileFailurePersistence"* ]]; then
            section+=$'\n'$line
        fi
    done
    tell_success "$section"
    summary
}

tell_success() {
    [[ $1 != *$'\n'* || $1 == *" panicked at "* ]] || printf '%s\n' "$1"
}

# Notes the tests, and runs what Cargo's runner does not get: those in the documentation.
note_tests() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    env "CARGO_TARGET_${host}_RUNNER=$PWD/tools/test-later.sh" FOREBAY_TESTS_LATER="$later" \
        cargo test --no-fail-fast --color "$colour" "$@" -- --show-output
}

# Those that compute have one processor between them, and only while those that wait do not want it.
run_noted() {
    local result=0 computing
    # What a script starts behind itself would not hear a Ctrl-C.
    (trap - INT && find "$later/computing" -type f -print0 | sort -z | nice xargs -0 -r -P 1 -n 1 tools/test-now.sh) &
    computing=$!
    find "$later/waiting" -type f -print0 | sort -z | xargs -0 -r -P "${TEST_BINARIES_AT_ONCE:-$(nproc)}" -n 1 tools/test-now.sh || result=1
    wait "$computing" || result=1
    return "$result"
}

# When it is ended from outside, the tests are too, and what they had printed is shown still: the one that hung is among them.
trap : INT TERM
later=$(mktemp -d)
trap 'rm -rf "$later"' EXIT
mkdir "$later/computing" "$later/waiting"

{
    result=0
    note_tests "$@" || result=1
    run_noted || result=1
    if ((result == 0)) && [[ -z $(find "$later/computing" "$later/waiting" -name '*.printed') ]]; then
        echo "no test binary was run: nothing was tested" >&2
        result=1
    fi
    exit "$result"
} 2>&1 | filter
exit "${PIPESTATUS[0]}"
