# Two commands do all the set-up: `make demo` and `make test`. The set-up itself is tools/setup_env.sh.
SHELL := /bin/bash
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Empty: the first of python3, python3.11, python3.12, python3.13 that runs and is 3.11, 3.12 or 3.13.
PYTHON ?=
export PYTHON

BIN := .venv/bin
DEMO_OUT ?= outputs/demo
PYTEST_ARGS ?=
# Half of a test's time goes into Python: two at once on half of the threads each beat one on all. Freed memory stays
# with the process: torch on a CPU else gets and clears every large tensor anew, half of a training step's time.
TEST_WORKERS ?= 2
TEST_ENV = OMP_NUM_THREADS=$$(( ($$(getconf _NPROCESSORS_ONLN) + $(TEST_WORKERS) - 1) / $(TEST_WORKERS) )) \
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184

.PHONY: help env dev test lint format demo matrix clean distclean

help:  ## Show this list
	@echo 'vitdense: make TARGET'
	@echo
	@sed -n 's/^\([a-z]*\):.*  ## /\1|/p' Makefile | while IFS='|' read -r target text; do printf '  %-10s %s\n' "$$target" "$$text"; done
	@echo
	@echo 'demo and test make .venv by themselves (10 to 15 minutes on two cores the first time on a machine, most'
	@echo 'of it the compilation of MMCV; 2 minutes where pip has that wheel; no time once .venv is there).'
	@echo 'Another Python: make demo PYTHON=python3.12'

env:  ## Make .venv: training, export, OpenVINO, the demo's photos
	@bash tools/setup_env.sh env

dev:  ## The same, and what the tests need
	@bash tools/setup_env.sh dev

test: dev  ## Set up if need be; then ruff, mypy and all tests
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TEST_ENV) $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 $(PYTEST_ARGS)

demo: env  ## Set up if need be; then train, export, quantize and draw: pictures in outputs/demo
	$(BIN)/python tools/quickstart.py --out $(DEMO_OUT)

matrix: dev  ## Every trained model to every target: docs/matrix.md (hours; set VITDENSE_DATA)
	$(BIN)/python tools/matrix.py --out docs/matrix.md

lint: dev  ## Only ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: dev  ## Let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove caches and build leftovers (neither .venv nor your outputs, work_dirs and data)
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf .venv
