#!/bin/sh
# The judge. Runs in the workspace and prints one line of JSON that starts with a brace.
# This one always reports the same score, so nothing is kept: measure something that matters here.
#
#   valid   false if the candidate cannot be scored (it does not build, a test fails)
#   score   a number
#   solved  true ends the run
#   note    one line for people
echo '{"valid": true, "score": 1, "solved": false, "note": "a constant: replace measure.sh"}'
