#!/bin/sh
# Adds one to the counter, then tries what it should not be able to, and writes down what came of it.
cat > /dev/null
n=$(cat counter.txt) && echo $((n + 1)) > counter.txt || exit 1

# What is tried, and the command that tries it.
try() {
    what=$1
    shift
    if "$@" > /dev/null 2>&1; then echo "$what: yes"; else echo "$what: no"; fi
}

{
    echo "in $(pwd) as $(id -un)"
    try "read this workspace" cat counter.txt
    try "run the host's git" git --version
    try "read the manifest beside the workspace" cat ../crucible.toml
    try "read the state directory" ls ../state/session.jsonl
    try "see the homes of this machine" ls /home
    try "write to /usr" test -w /usr
    try "have a route" grep -q '[0-9]' /proc/net/route
    try "make a namespace" unshare --user true
    # An address that is nobody's: outside of a sandbox this waits in vain.
    told=$(LC_ALL=C timeout 5 git ls-remote git://192.0.2.1/x 2>&1 | grep -o 'Network is unreachable')
    echo "connect to another machine: ${told:-no answer}"
} > seen.txt
