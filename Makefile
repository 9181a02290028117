# Each target works as the first command on a fresh clone.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.stamp
CODE := src tests benchmarks examples tools conftest.py
# pages whose examples are run
PAGES := README.md docs
TESTED := tests src benchmarks $(PAGES)
# two workers per core, since tests wait for queries and servers; two of them have the tests on Spark (tests/spark_workers.py)
WORKERS := -n $(shell echo $$((2 * $$(nproc)))) --dist loadfile
# temporary files of tests are in memory where there is room: many tests wait for the disk, few are about it
MEMORY := $(shell [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 4096 ] 2>/dev/null && echo TMPDIR=/dev/shm)
# images set it; every Spark worker would then compile the sources again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup browser run test test-fast test-one test-all test-matrix test-jars bench mutants lint docs docs-serve report release-assets clean
.DEFAULT_GOAL := help

help:
	@echo "make setup           the environment .venv, with everything"
	@echo "make run             STATS in process and on local Spark, compared, with a picture"
	@echo "make test            lint, types, tests and doctests (test-fast: 90 s, test-one FILE=…: one file, test-all: slow tests too)"
	@echo "make test-jars       the tests of Kafka against Apache Kafka, and of Spark's own ends, where Maven Central answers"
	@echo "make test-matrix     the tests on Spark, with Spark 4.0, 4.1, 4.2 and 4.3"
	@echo "make bench           riot_ops beside other ways to do the same work"
	@echo "make docs            the documentation site into site/ (docs-serve: in the browser; report: the papers' experiments into build/report)"
	@echo "make release-assets  raw results for a release"
	@echo "make mutants         faults that no test notices"

setup: $(STAMP)

$(STAMP): pyproject.toml tools/setup.sh tools/services.py
	@bash tools/setup.sh $(VENV)
	@touch $(STAMP)

# an environment that has only what it needs, unless there is one with everything
run: $(if $(wildcard $(STAMP)),setup,$(VENV)/.stamp-run)
	@$(PY) tools/first_run.py

$(VENV)/.stamp-run: pyproject.toml tools/setup.sh
	@bash tools/setup.sh $(VENV) run
	@touch $@

# a browser, for the tests of pages
browser: setup
	@$(PY) tools/services.py install chromium >/dev/null || true

lint: setup
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/ruff format --check --quiet $(CODE)
	$(VENV)/bin/mypy
	$(VENV)/bin/basedpyright --pythonpath $(PY)

# lint runs beside the tests, since mypy uses one core; its output comes at the end
# so do a minute of tests on the oldest Spark: its environment is made meanwhile
# a test that fails runs once more, alone: it may have failed only because it shared two cores; both runs are printed
test: setup browser
	@said=$$(mktemp); old=$$(mktemp); $(MAKE) --no-print-directory lint >$$said 2>&1 & lint=$$!; \
	$(MEMORY) $(PY) tools/spark_versions.py test --short 4.0 >$$old 2>&1 & oldest=$$!; \
	$(MEMORY) $(PY) -m pytest $(WORKERS) -m "not slow" $(TESTED); tests=$$?; \
	if [ $$tests = 1 ]; then echo "test: what failed runs once more, alone"; \
	$(MEMORY) $(PY) -m pytest --lf --maxfail 5 -m "not slow" $(TESTED); tests=$$?; fi; \
	wait $$lint; lint=$$?; wait $$oldest; oldest=$$?; cat $$said $$old; rm $$said $$old; \
	exit $$((tests ? tests : lint ? lint : oldest))

# the tests on Spark with each version that is supported, in environments of their own; VERSIONS="4.1" for one
VERSIONS ?= 4.0 4.1 4.2 4.3
test-matrix: setup
	$(MEMORY) $(PY) tools/spark_versions.py test $(VERSIONS)

# neither Spark nor servers nor long tests, few random examples: for the work between two commits
test-fast: setup
	$(MEMORY) HYPOTHESIS_PROFILE=fast $(PY) -m pytest $(WORKERS) -m "not (slow or long or spark or integration)" tests src $(PAGES)

# the tests of one file: make test-one FILE=src/riot_ops/tasks/join/assemble_message.py
test-one: setup
	$(PY) tools/test_one.py $(FILE)

# Apache Kafka from jars, by Maven into build/jars: one broker, and three that are killed; and Spark's own ends
test-jars: setup
	$(MEMORY) $(PY) tools/test_jars.py $(IF_SERVED)

test-all: lint browser
	$(MEMORY) HYPOTHESIS_PROFILE=search $(PY) -m pytest $(WORKERS) $(TESTED)

bench: setup
	@for name in kernels keyed stats windows latency growth operators models mqtt; do $(VENV)/bin/riot-ops bench $$name || exit 1; done

# MUTATED="src/riot_ops/tasks/join/assemble_message.py" or "--sample 200 src/riot_ops/tasks" for a part
MUTATED ?= --sample 200 $(addprefix src/riot_ops/,tasks dataflows streams models runtime)
mutants: setup
	$(PY) tools/mutants.py --jobs $$(nproc) $(MUTATED)

# the documentation site into site/; broken links, pages without a place and code that does not run fail
docs: setup
	$(PY) tools/docs_site build

# the same on http://localhost:8000, made again after each change
docs-serve: setup
	$(PY) tools/docs_site serve

# the papers' experiments in their quick form, onto one page in build/report
report: setup
	$(VENV)/bin/riot-ops report --quick --out build/report

# what a release carries beside its wheels: raw results and the report
release-assets: setup
	@test -f build/report/results.jsonl || { echo "release-assets: run make report first" >&2; exit 1; }
	mkdir -p dist && tar -czf dist/riot-bench-results.tar.gz -C build report -C ../benchmarks results

clean:
	rm -rf $(VENV) out build dist site
