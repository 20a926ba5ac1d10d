#!/bin/sh
# gate-until-decided.sh SECONDS COMMAND [ARGUMENT...]
#
# Runs the command again while it ends with 3 (INCONCLUSIVE), for at most SECONDS: an engine that is still starting can
# not be asked. Every other code is final and is passed on, and so is the last 3: time alone makes nothing clean.
# A violation (1) is never asked again: an answer that changes when it is repeated is no better for it.
set -u
if [ "$#" -lt 2 ] || ! [ "$1" -ge 0 ] 2> /dev/null; then
  echo "usage: gate-until-decided.sh SECONDS COMMAND [ARGUMENT...]" >&2
  exit 2
fi
end=$(($(date +%s) + $1))
shift
while :; do
  code=0
  "$@" || code=$?
  if [ "$code" -ne 3 ] || [ "$(date +%s)" -ge "$end" ]; then
    exit "$code"
  fi
  sleep "${PAGEFENCE_PAUSE_S:-10}"
done
