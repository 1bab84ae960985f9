# `make` lists the targets. Each runs on a fresh machine: it makes .venv and installs what it needs.
PYTHON ?= python3
VENV   ?= .venv
TRACE  ?= examples/train_image_classifier.json.gz
ARGS   ?=
DATA   ?= outputs/benchmark
# The real traces that faults are put into; fetched where there is no such folder.
BASES  ?= $(wildcard ../shared/traces)

BIN := $(VENV)/bin
# Python compiles what it loads: of 18,000 files few are.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile -c constraints.txt
# Stamps: a second call installs nothing, a changed pin or dependency does.
BASE := $(VENV)/.installed
DEV  := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help scan test format record benchmark train evaluate bench fuzz clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */\1\t/' | expand -t 12

scan: $(BASE)  ## scan the bundled example, or TRACE=path; ARGS="--out DIR" and any other option
	@$(BIN)/python -m detector $(TRACE) $(ARGS)

test: $(DEV)  ## every check: style, types, layers, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

format: $(DEV)  ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

record: $(DEV)  ## record real programs, faulty and healthy; ARGS="device=cuda"
	$(BIN)/python -m dataset.record out=outputs/recorded $(ARGS)

benchmark: $(DEV)  ## build the labeled benchmark into DATA and check it; BASES=folder of real traces
	$(BIN)/python -m dataset.build benchmark=full out=$(DATA) $(if $(BASES),bases=$(BASES)) $(ARGS)
	$(BIN)/python -m dataset.check $(DATA)

train: $(DEV)  ## train the models that ship, from DATA
	$(BIN)/python -m detector.train experiment=flagger data=$(DATA) $(ARGS)
	$(BIN)/python -m detector.train experiment=confidence data=$(DATA) $(ARGS)

evaluate: $(DEV)  ## score the models on workloads held out of DATA
	$(BIN)/python -m detector.evaluate experiment=flagger data=$(DATA) $(ARGS)
	$(BIN)/python -m detector.evaluate experiment=confidence data=$(DATA) $(ARGS)

bench: $(DEV)  ## time and peak memory of a scan by stage; TRACE=path
	$(BIN)/python scripts/bench_scan.py $(TRACE) $(ARGS)

fuzz: $(DEV)  ## the invariants, with many more examples; the reader by bytes, where atheris is installed
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/property $(ARGS)
	$(BIN)/python -m tests.fuzz.reader 300

clean:  ## remove .venv, caches and build leftovers
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml constraints.txt detector/kineto/_scan.c detector/replay/_solve.c | $(BIN)/python
	@echo "Installing the scanner into $(VENV): numpy, lightgbm, hydra and a few more, 280 MB on disk ..."
	@$(PIP) -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt detector/kineto/_scan.c detector/replay/_solve.c | $(BIN)/python
	@echo "Installing the development tools into $(VENV): torch, transformers, pytest and more, 2 GB on disk ..."
	@$(PIP) -e '.[dev]'
	@touch $@ $(BASE)
