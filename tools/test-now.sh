#!/usr/bin/env bash
# Runs one test binary that tools/test-later.sh noted, and shows what it printed when it has ended: others run beside it.
set -uo pipefail

# It outlives the binary when both are ended.
trap : INT TERM
noted=$1
name=${noted##*/}
result=0
bash "$noted" >"$noted.printed" 2>&1 </dev/null || result=$?
# A test that ends the process well takes those behind it along.
if ((result == 0)) && ! grep -q '^test result: ' "$noted.printed"; then
    result=1
fi
{
    flock 9
    printf '\n     Tests of %s: %s\n' "${name%%--*}" "${name#*--}"
    cat "$noted.printed"
    ((result == 0)) || printf '\n     Ended with %s\n' "$result"
} 9>"${noted%/*/*}/lock"
((result == 0))
