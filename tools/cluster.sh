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
folder=$(realpath -ms -- "$folder")
module=riot_ops.testing.spark_cluster
pid() { cat "$folder/pid" 2>/dev/null || true; }
# the number of a process that has ended may be that of another one by now
running() { grep -qaF "$module" "/proc/$(pid)/cmdline" 2>/dev/null && grep -qaF "$folder" "/proc/$(pid)/cmdline"; }
forget() { rm -f "$folder/pid" "$folder/url"; }
remove_rest() { "$python" -m "$module" "$folder" --remove "$(pid)"; forget; }
end() {
  kill "$(pid)" 2>/dev/null || true
  for _ in {1..300}; do running || return 0; sleep 0.1; done
  kill -KILL "$(pid)" 2>/dev/null || true
}

case $command in
  start)
    "$python" -c 'import pyspark, riot_ops' 2>/dev/null ||
      { echo "cluster: $python has no riot_ops with pyspark: make setup, or PYTHON=/path/of/another" >&2; exit 1; }
    running && { echo "cluster: it runs already: $(cat "$folder/url" 2>/dev/null || echo it starts)" >&2; exit 1; }
    [ -z "$(pid)" ] || remove_rest
    mkdir -p "$folder"; rm -f "$folder/url"
    setsid "$python" -m "$module" "$folder" "$@" >"$folder/cluster.log" 2>&1 </dev/null &
    started=$!
    echo "$started" >"$folder/pid"
    trap 'echo "cluster: interrupted, it is stopped" >&2; end; remove_rest; exit 130' INT TERM HUP
    until [ -s "$folder/url" ]; do
      kill -0 "$started" 2>/dev/null ||
        { echo "cluster: it does not start:" >&2; tail -n 20 "$folder/cluster.log" >&2; forget; exit 1; }
      sleep 0.2
    done
    cat "$folder/url" ;;
  stop)
    [ $# -eq 0 ] || usage
    if running; then
      end; remove_rest; echo "cluster: stopped"
    elif [ -n "$(pid)" ]; then
      remove_rest; echo "cluster: it had ended without a stop; what was left of it is removed"
    else
      echo "cluster: it does not run"
    fi ;;
  status)
    [ $# -eq 0 ] || usage
    running || { echo "cluster: it does not run$([ -z "$(pid)" ] || echo ': it ended without a stop')"; exit 3; }
    cat "$folder/url" 2>/dev/null || echo "cluster: it starts" ;;
  *) usage ;;
esac
