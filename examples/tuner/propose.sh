#!/bin/sh
# The agent: reads its prompt on standard input and moves the point by one step.
# Iterations 1 to 8 try steps of 1, 9 to 16 of 1/2, and so on; each tries +x, -x, +y, -y in turn.
set -eu
iteration=$(sed -n 's/^Iteration \([0-9][0-9]*\) of .*/\1/p' | head -n 1)
awk -v k="$iteration" '{
    step = 1 / 2 ^ int((k - 1) / 8)
    turn = (k - 1) % 4
    if (turn == 0) $1 += step
    if (turn == 1) $1 -= step
    if (turn == 2) $2 += step
    if (turn == 3) $2 -= step
    printf "%.17g %.17g\n", $1, $2
}' point.txt > point.new
mv point.new point.txt
