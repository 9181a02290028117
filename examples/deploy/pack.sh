#!/usr/bin/env bash
# Packs an environment with riot_ops for clusters on which it is not installed: environment.tar.gz for --archives.
# usage: pack.sh [EXTRAS]     such as mqtt,kafka; run it on the system and the Python of the workers
set -euo pipefail
extras=${1:-mqtt}
python3 -m venv environment
# without the extra "spark": the cluster brings its own pyspark, which may be a patched one
environment/bin/pip install --quiet "riot-ops[$extras]" "pandas>=2.2,<3" "protobuf>=5" venv-pack
environment/bin/venv-pack --force --prefix environment --output environment.tar.gz
