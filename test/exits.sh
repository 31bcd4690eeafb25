#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exits.sh N CMD…: runs CMD and succeeds if it exits with exactly N. N = nonzero: any orderly failure
# (1..125), so that a crash (126 and above: signals, sanitizers) is never taken for a refusal.
want=$1
shift
"$@"
got=$?
if [ "$want" = nonzero ]; then
  [ "$got" -ge 1 ] && [ "$got" -le 125 ] && exit 0
elif [ "$got" -eq "$want" ]; then
  exit 0
fi
echo "exits.sh: expected exit status $want, got $got: $*" >&2
exit 1
