#!/bin/sh
# Prints one reading: the number in `comparisons`, and whether a solution from elsewhere is there, which counts as nothing. At
# most 20 is the win.
if [ -e solution ]; then
    printf '{"valid": false, "note": "the solution is not the agent'"'"'s own"}\n'
    exit 0
fi
n=$(cat comparisons) || exit 1
if [ "$n" -le 20 ]; then solved=true; else solved=false; fi
printf '{"valid": true, "score": %s, "solved": %s}\n' "$n" "$solved"
