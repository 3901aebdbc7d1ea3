# Every target works from a fresh clone: it makes .venv, installs what requirements/*.txt lock, builds the
# extension, and says what is missing. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The scripts that installing puts beside python (penstock, mypy, stubtest) are found without activating the venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Images of containers set it. Nothing is compiled when it is installed, so each process would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -type d -o -name '*.rs' -o -name Cargo.toml -o -name '*.pyi')

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

.PHONY: demo
demo: $(VENV)/.extension ## real documents through Spark and QUIC, then verified (DEMO="--documents DIR" for your own)
	@scripts/check-tools java
	penstock demo $(DEMO)

# The whole workspace, though the extension has no Rust tests: so cargo chooses the crates' features as it does for
# maturin, and what `develop` has built is used again.
.PHONY: test
test: develop $(VENV)/spark-classes.jsa ## every test, Rust and Python
	@scripts/check-tools java
	scripts/run-tests --numprocesses 4 --durations 10 $(PYTEST)

.PHONY: test-fast
test-fast: develop ## the Python tests that need neither Spark nor a cluster
	pytest --numprocesses 4 --durations 10 -m "not spark" --ignore tests/spark --ignore tests/cluster --ignore tests/demo $(PYTEST)

.PHONY: drill-cluster
drill-cluster: develop wheel ## clusters for longer: many faults, and the environment made as docs/cluster.md says, from the wheel
	@scripts/check-tools java
	PENSTOCK_LONG_TESTS=1 PENSTOCK_WHEEL="$$(ls -t dist/penstock-*.whl | head -n 1)" pytest tests/cluster

.PHONY: drill-quicx
drill-quicx: develop ## producers, workers and the daemon of a task queue killed at random, 100 times; prints a table
	python scripts/drill_quicx.py

.PHONY: drill-pipestream
drill-pipestream: develop ## a PipeStream server and its sender killed at random, 50 times, with real documents; prints a table
	python scripts/drill_pipestream.py

.PHONY: miri
miri: ## the pool under miri, where nightly has it
	@if cargo +nightly miri --version >/dev/null 2>&1; then \
	    cargo +nightly miri test --locked -p penstock-pool --lib --test it; \
	else \
	    echo "SKIPPED: nothing ran. rustup +nightly component add miri" >&2; \
	fi

.PHONY: lint
lint: lint-rust lint-python lint-web guards docs ## every check, Rust and Python

.PHONY: lint-rust
lint-rust: venv
	@scripts/check-tools cargo
	cargo fmt --check
	for manifest in fuzz/Cargo.toml tools/*/Cargo.toml benches/peers/*/Cargo.toml; do cargo fmt --check --manifest-path $$manifest; done
	for manifest in fuzz/Cargo.toml tools/*/Cargo.toml benches/peers/Cargo.toml; do cargo update --quiet --workspace --locked --manifest-path $$manifest; done
	cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/cargo-deny --locked check bans licenses sources
	scripts/regenerate-proto.sh --check

.PHONY: lint-python
lint-python: develop
	ruff check
	ruff format --check
	mypy python scripts benches
	MYPYPATH=python stubtest --mypy-config-file pyproject.toml penstock._core

.PHONY: lint-web
lint-web: ## the types of the page that the PIMP buffer serves; skipped without npm
	scripts/check-web

.PHONY: guards
guards: develop
	pytest --quiet tests/guards

.PHONY: docs
docs: venv ## the documentation in site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

.PHONY: venv
venv: $(VENV)/.dev.txt ## .venv with the locked tools, without the extension

.PHONY: develop
develop: venv $(VENV)/.extension ## .venv with the extension built into python/penstock

.PHONY: wheel
wheel: venv ## a release wheel in dist/
	@scripts/check-tools cargo
	maturin build --release --out dist

# Suites build in release what they measure, beside what `develop` has built.
.PHONY: bench
bench: venv ## measure against peers (BENCH="heap ..." chooses suites), and write benches/results
	@scripts/check-tools cargo java
	python -m benches $(BENCH)

.PHONY: lock
lock: venv ## write requirements/*.txt anew from requirements/*.in and pyproject.toml
	scripts/lock-requirements

.PHONY: clean
clean: ## remove everything that was built, .venv too
	rm -rf $(VENV) target fuzz/target benches/peers/target dist site demo-output spark-warehouse artifacts metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find python -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs a fifth of the packages. The content decides, not the date: a checkout that only touches the lock costs
# nothing. Python compiles a module when it is first imported; most of them never are.
$(VENV)/.dev.txt: $(VENV)/.run.txt
$(VENV)/.%.txt: requirements/%.txt
	@scripts/check-tools python
	@if [ ! -x $(BIN)/python ]; then $(PYTHON) -m venv $(VENV); fi
	@if ! cmp -s $< $@; then \
	    echo "installing the packages locked in $<"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r $<; \
	fi
	@cp $< $@

$(VENV)/.extension: $(VENV)/.run.txt pyproject.toml $(RUST_SOURCES)
	@scripts/check-tools cargo
	maturin develop
	@touch $@

# The last thing that is built: it takes two starts of Spark to save more than half of all others.
$(VENV)/spark-classes.jsa: $(VENV)/.run.txt scripts/spark_classes.py | $(VENV)/.extension
	@scripts/check-tools java
	python scripts/spark_classes.py
