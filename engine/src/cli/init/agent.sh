#!/bin/sh
# The agent. Reads its prompt on standard input and edits files in the workspace.
# This one only writes down that it was here: call your own agent instead, for example
#
#   my-agent --prompt-from-stdin
cat > /dev/null
date >> agent.log
