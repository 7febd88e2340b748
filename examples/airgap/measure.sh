#!/bin/sh
# Prints one reading: the number in `comparisons`, and whether a solution from elsewhere is there, which counts as nothing.
if [ -e solution ]; then
    printf '{"valid": false, "note": "the solution is not the agent'"'"'s own"}\n'
    exit 0
fi
n=$(cat comparisons) || exit 1
printf '{"valid": true, "score": %s}\n' "$n"
