#!/bin/sh
# Prints one reading: the number in counter.txt. Three is the win.
n=$(cat counter.txt) || exit 1
case $n in
'' | *[!0-9]*)
    printf '{"valid": false, "note": "counter.txt holds no number"}\n'
    exit 0
    ;;
esac
[ "$n" -ge 3 ] && solved=true || solved=false
printf '{"valid": true, "score": %s, "solved": %s, "note": "the counter stands at %s"}\n' "$n" "$solved" "$n"
