#!/usr/bin/env bash
# Install other engines for `riot-ops bench engines`, each in its own environment, by default all:
# tools/baseline_engines.sh [bytewax] [flink] [pathway]
# The environments are in $RIOT_OPS_ENGINES, by default ~/.cache/riot_ops/engines; some 50 MB for bytewax, 600 MB
# for flink (and Java), 1.6 GB for pathway.
set -euo pipefail
target=${RIOT_OPS_ENGINES:-$HOME/.cache/riot_ops/engines}
python=${PYTHON:-python3}
# further requirements of the programs; riot_ops and riot_bench are imported from this checkout
needs=(numpy pyarrow msgspec mmh3 orjson)
[ $# -gt 0 ] || set -- bytewax flink pathway
for engine; do
  case $engine in
    bytewax) package="bytewax>=0.21,<0.22" ;;
    flink) package="apache-flink>=2.0" ;;
    pathway) package="pathway>=0.33" ;;
    *) echo "unknown engine $engine; known are bytewax, flink and pathway" >&2; exit 2 ;;
  esac
  there=$([ -e "$target/$engine" ] && echo yes || true)
  "$python" -m venv "$target/$engine"
  if ! "$target/$engine/bin/pip" install --quiet "$package" "${needs[@]}"; then
    [ "$there" ] || rm -rf "${target:?}/$engine"
    echo "$engine could not be installed" >&2
    exit 1
  fi
  echo "$engine: $target/$engine"
done
