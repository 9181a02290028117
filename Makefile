# make setup · run · test · test-all · bench · mutants: each works as the first command on a fresh clone.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.stamp
# two at a time: each may start a Spark of its own
WORKERS := -n 2 --dist loadfile
# images set it; every worker of Spark would compile our sources anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-all bench mutants lint docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile; echo "see CONTRIBUTING.md"

setup: $(STAMP)

$(STAMP): pyproject.toml scripts/setup.sh scripts/services.py
	@bash scripts/setup.sh $(VENV)
	@touch $(STAMP)

run: setup
	$(VENV)/bin/riot-ops run stats --overwrite

lint: setup
	$(VENV)/bin/ruff check src tests examples scripts
	$(VENV)/bin/mypy

test: lint
	$(PY) -m pytest $(WORKERS) -m "not slow" tests src README.md docs/howto

test-all: lint
	HYPOTHESIS_PROFILE=search $(PY) -m pytest $(WORKERS) tests src README.md docs/howto

bench: setup
	@for name in kernels keyed stats latency growth models mqtt; do $(VENV)/bin/riot-ops bench $$name || exit 1; done

# MUTATED="src/riot_ops/tasks/merge/join.py" or "--sample 200 src/riot_ops/tasks" for a part
MUTATED ?= --sample 200 $(addprefix src/riot_ops/,tasks dataflows streams models runtime)
mutants: setup
	$(PY) scripts/mutants.py --jobs $$(nproc) $(MUTATED)

docs: setup
	$(PY) scripts/write_docs.py

clean:
	rm -rf $(VENV) out build dist
