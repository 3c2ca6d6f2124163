# One way in: people, hooks and CI run these verbs. Each sets itself up in .venv; none needs an active environment.

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-quick test-full test-local test-servers test-cluster test-versions test-oldest test-long check lint types format bench bench-arrow bench-cold bench-comparison bench-jobs bench-memory bench-merging bench-mirroring bench-staging bench-sizes docs docs-serve dist lock clean distclean

BIN := .venv/bin

# What every command sees, whatever environment is active and whatever Spark the machine has: as with .venv activated.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
export SPARK_LOCAL_IP ?= 127.0.0.1
unexport DAGSTER_HOME PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH PYSPARK_DRIVER_PYTHON PYSPARK_PYTHON SPARK_CONF_DIR SPARK_HOME

# `make demo` and `make ui` share one Dagster instance: the UI shows what the demo ran.
DAGSTER := DAGSTER_HOME="$(CURDIR)/.dagster_home"

# More arguments for the tests or the benchmark: make test ARGS="-k evolution -x"
ARGS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Make .venv from the lock, find or install Java, fetch Spark's libraries; nothing when nothing changed
	@bash scripts/setup.sh

.dagster_home/dagster.yaml:
	@mkdir -p $(@D)
	@printf 'telemetry:\n  enabled: false\nnux:\n  enabled: false\n' >$@

demo: setup .dagster_home/dagster.yaml ## Run the example: a few partitions of flights, and what each write committed
	@$(DAGSTER) $(BIN)/python -m example_project.demo

ui: setup .dagster_home/dagster.yaml ## Open the example in Dagster's UI
	@echo "The tables are at http://127.0.0.1:3000/assets, as soon as Dagster says that it serves its webserver."
	@$(DAGSTER) $(BIN)/dg dev -w workspace.yaml $(ARGS)

# Two processes share the files of tests, and one of them has Spark Connect. ARGS="-n 0" runs all tests in one.
PYTEST := -m pytest -n 2 --dist loadgroup
LOCAL := $(PYTEST) --ignore=tests/servers

# FEATURE=mirror runs the tests of one feature.
test: setup ## Run what shows in three minutes that the package works, before every commit
	@$(BIN)/python $(LOCAL) -m "not slow and not full and not server" $(FEATURE:%=tests/features/%) $(ARGS)

test-quick: setup ## Run the tests that need no JVM: half a minute
	@$(BIN)/python $(LOCAL) -m "not spark and not slow and not full and not server" $(ARGS)

test-full: setup ## Run the other cases of these tests: grids, crashes, and Spark Connect where engines differ
	@$(BIN)/python $(LOCAL) -m "full and not slow and not server" $(ARGS)

test-local: setup ## Run test and test-full as one, as CI does: the JVMs start once
	@$(BIN)/python $(LOCAL) -m "not slow and not server" $(ARGS)

test-servers: setup ## Run the tests against real catalogs and object stores only
	@$(BIN)/python $(PYTEST) -m "server and not slow and not cluster" $(ARGS)

test-cluster: setup ## Run the tests on a Spark standalone cluster, which the tests start themselves
	@$(BIN)/python -m pytest -m cluster $(ARGS)

OLDER_SPARKS := 3.5 4.0
TEST_SPARKS := $(OLDER_SPARKS:%=test-spark-%)
.PHONY: $(TEST_SPARKS)

test-versions: $(TEST_SPARKS) ## Run what differs with older versions of Spark, or test-spark-3.5 alone

$(TEST_SPARKS): test-spark-%: setup
	@bash scripts/setup.sh spark $*
	@PATH="$(CURDIR)/.venv-spark-$*/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/.venv-spark-$*" .venv-spark-$*/bin/python \
		$(PYTEST) -m "versions and not slow" tests/core/behaviour tests/features $(ARGS)

test-oldest: setup ## Run the main jobs with the oldest versions that pyproject.toml promises
	@bash scripts/setup.sh oldest
	@PATH="$(CURDIR)/.venv-oldest/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/.venv-oldest" .venv-oldest/bin/python \
		-m pytest -m "not slow and not full" tests/features/testing tests/core/arrow/test_write.py $(ARGS)

test-long: setup ## Run what CI leaves out: all cases on both engines and all catalogs, long histories, many crashes
	@$(BIN)/python $(PYTEST) -m slow $(ARGS)

check: lint types docs test-local test-servers test-cluster test-versions test-oldest ## Run all that CI runs

lint: setup ## Check style, formatting and which room imports which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo

types: setup ## Check types
	@$(BIN)/mypy

format: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: setup ## Measure what the IO manager adds to a plain Spark write
	@$(BIN)/python -m benchmarks.overhead $(ARGS)

bench-arrow: setup ## Measure writes without a JVM beside plain Spark and pyiceberg by hand
	@$(BIN)/python -m benchmarks.arrow $(ARGS)

bench-cold: setup ## Measure whole processes of Dagster beside processes of plain PySpark
	@$(BIN)/python -m benchmarks.cold $(ARGS)

bench-comparison: setup ## Compare twelve situations with plain Spark and dagster-iceberg
	@$(BIN)/python -m benchmarks.comparison $(ARGS)

bench-jobs: setup ## Measure jobs of Dagster Pipes beside the same spark-submit alone
	@$(BIN)/python -m benchmarks.jobs $(ARGS)

bench-merging: setup ## Measure merges beside a plain MERGE, and the files that each writes again
	@$(BIN)/python -m benchmarks.merging $(ARGS)

bench-memory: setup ## Measure how much memory reading and writing Arrow takes
	@$(BIN)/python -m benchmarks.memory $(ARGS)

bench-mirroring: setup ## Measure what a mirror adds to a small daily partition
	@$(BIN)/python -m benchmarks.mirroring $(ARGS)

bench-staging: setup ## Measure what audits and a publication add to a small daily partition
	@$(BIN)/python -m benchmarks.staging $(ARGS)

bench-sizes: setup ## Measure how the cost of a write grows with days, files, snapshots, columns, assets and rows
	@$(BIN)/python -m benchmarks.sizes $(ARGS)

docs: setup ## Build the documentation as a site in site/, and check its links
	@$(BIN)/python scripts/build_site.py $(ARGS)

docs-serve: setup ## Show the site on http://127.0.0.1:8000, and build it again whenever a page changes
	@$(BIN)/zensical serve $(ARGS)

dist: setup ## Build the wheel and the source distribution in dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

lock: ## Compile requirements.txt from pyproject.toml; newest versions with ARGS=--upgrade
	@bash scripts/setup.sh lock $(ARGS)

clean: ## Remove caches, reports, builds, and the demo's runs and tables
	@rm -rf .dagster_home .tmp_dagster_home_* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@rm -rf .reports .setup.log artifacts build derby.log dist lake metastore_db site spark-warehouse
	@find . -name __pycache__ -type d -not -path './.venv*/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv and the environments of older versions of Spark as well
	@rm -rf .venv .venv-oldest .venv-spark-*
