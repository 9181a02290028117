#!/usr/bin/env bash
# Other engines for `riot-ops bench engines`, each in an environment of its own: scripts/opponents.sh [bytewax] [flink] [pathway]
# They lie in $RIOT_OPS_ENGINES, by default ~/.cache/riot_ops/engines; some 50 MB for bytewax, 600 MB
# for flink (and Java), 1.6 GB for pathway.
set -euo pipefail
target=${RIOT_OPS_ENGINES:-$HOME/.cache/riot_ops/engines}
python=${PYTHON:-python3}
# what the programs need besides: riot_ops itself is taken from where it is
needs=(numpy pyarrow msgspec mmh3 orjson)
for engine in "${@:-bytewax}"; do
  case $engine in
    bytewax) package="bytewax>=0.21,<0.22" ;;
    flink) package="apache-flink>=2.0" ;;
    pathway) package="pathway>=0.33" ;;
    *) echo "unknown engine $engine; known are bytewax, flink and pathway" >&2; exit 2 ;;
  esac
  "$python" -m venv "$target/$engine"
  "$target/$engine/bin/pip" install --quiet "$package" "${needs[@]}"
  echo "$engine: $target/$engine"
done
