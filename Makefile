# make setup · run · test · test-fast · test-one · test-all · bench · mutants: each works as the first command on a fresh clone.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.stamp
# two at a time; without the slow ones, one of them has all tests on Spark (tests/one_spark.py)
WORKERS := -n 2 --dist loadfile
# files of tests lie in memory where there is room: many wait for the disk, few are about it
MEMORY := $(shell [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 4096 ] 2>/dev/null && echo TMPDIR=/dev/shm)
# images set it; every worker of Spark would compile our sources anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-fast test-one test-all bench mutants lint docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile; echo "see CONTRIBUTING.md"

setup: $(STAMP)

$(STAMP): pyproject.toml tools/setup.sh tools/services.py
	@bash tools/setup.sh $(VENV)
	@touch $(STAMP)

run: setup
	$(VENV)/bin/riot-ops run stats --overwrite

lint: setup
	$(VENV)/bin/ruff check src tests benchmarks examples tools conftest.py
	$(VENV)/bin/mypy

# lint beside the tests, as types are checked by one core alone; what it says comes at the end
test: setup
	@said=$$(mktemp); $(MAKE) --no-print-directory lint >$$said 2>&1 & lint=$$!; \
	$(MEMORY) $(PY) -m pytest $(WORKERS) -m "not slow" tests src benchmarks README.md docs/howto; tests=$$?; \
	wait $$lint; lint=$$?; cat $$said; rm $$said; exit $$((tests ? tests : lint))

# neither Spark nor servers: for the work in between
test-fast: setup
	$(MEMORY) $(PY) -m pytest $(WORKERS) -m "not (slow or spark or integration)" tests src benchmarks README.md docs/howto

# the tests of one file: make test-one FILE=src/riot_ops/tasks/join/assemble_message.py
test-one: setup
	$(PY) tools/test_one.py $(FILE)

test-all: lint
	$(MEMORY) HYPOTHESIS_PROFILE=search $(PY) -m pytest $(WORKERS) tests src benchmarks README.md docs/howto

bench: setup
	@for name in kernels keyed stats windows latency growth operators models mqtt; do $(VENV)/bin/riot-ops bench $$name || exit 1; done

# MUTATED="src/riot_ops/tasks/join/assemble_message.py" or "--sample 200 src/riot_ops/tasks" for a part
MUTATED ?= --sample 200 $(addprefix src/riot_ops/,tasks dataflows streams models runtime)
mutants: setup
	$(PY) tools/mutants.py --jobs $$(nproc) $(MUTATED)

docs: setup
	$(PY) tools/write_docs.py

clean:
	rm -rf $(VENV) out build dist
