#!/usr/bin/env bash
# A standalone Spark cluster on this computer: a master, and workers that see neither the files of others nor of the driver.
# usage: cluster.sh start [FOLDER] [--workers N] [--cores N] [--memory SIZE] | stop [FOLDER] | status [FOLDER]
# The folder (build/cluster by default) gets logs, the process id, the address, and the folder that all workers share.
set -euo pipefail
usage() { sed -n '3,4s/^# //p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
command=${1:-}; shift || true
folder=$root/build/cluster
case ${1:-} in ''|--*) ;; *) folder=$1; shift ;; esac
pid() { cat "$folder/pid" 2>/dev/null || true; }
running() { [ -n "$(pid)" ] && kill -0 "$(pid)" 2>/dev/null; }

case $command in
  start)
    running && { echo "cluster: it runs already: $(cat "$folder/url")" >&2; exit 1; }
    mkdir -p "$folder"; rm -f "$folder/url"
    setsid "$python" -m riot_ops.testing.spark_cluster "$folder" "$@" >"$folder/cluster.log" 2>&1 </dev/null &
    echo $! >"$folder/pid"
    until [ -s "$folder/url" ]; do
      running || { echo "cluster: it does not start:" >&2; tail -n 20 "$folder/cluster.log" >&2; rm -f "$folder/pid"; exit 1; }
      sleep 0.2
    done
    cat "$folder/url" ;;
  stop)
    running || { echo "cluster: it does not run"; rm -f "$folder/pid" "$folder/url"; exit 0; }
    kill "$(pid)"
    while running; do sleep 0.1; done
    rm -f "$folder/pid" "$folder/url"
    echo "cluster: stopped" ;;
  status)
    running || { echo "cluster: it does not run"; exit 3; }
    cat "$folder/url" ;;
  *) usage ;;
esac
