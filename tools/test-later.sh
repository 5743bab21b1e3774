#!/usr/bin/env bash
# What run-tests.sh has Cargo start in place of each test binary: it notes the command with its directory and its environment, for tools/test-now.sh.
# What is no binary of Cargo's own (the tests in the documentation) is run at once.
set -euo pipefail

[[ $1 == */deps/* ]] || exec "$@"
case $CARGO_PKG_NAME in
    forebay-engine | forebay-sim) kind=computing ;;
    *) kind=waiting ;;
esac
{
    printf 'cd %q\n' "$PWD"
    export -p
    printf 'exec'
    printf ' %q' "$@"
} >"$FOREBAY_TESTS_LATER/$kind/$CARGO_PKG_NAME--${1##*/}"
