# `make` prints what there is. All targets but help see to .venv first.
.DEFAULT_GOAL := help
.PHONY: help setup demo test cover check bench faults steady live docs lock clean

BIN := .venv/bin
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## .venv with holdfast in it, and the system packages it needs
	@scripts/setup

demo: setup ## an agent rebuilds a real library, is killed, wakes and finishes
	@$(BIN)/holdfast demo $(ARGS)

test: setup ## the tests, three files at a time
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

cover: setup ## the tests again, with the lines and branches that none of them reaches
	@$(BIN)/coverage run -m pytest -q $(ARGS) && $(BIN)/coverage combine -q && $(BIN)/coverage report

check: setup ## format, lint, import contracts, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

bench: setup ## every measurement of bench/, one after the other
	@scripts/bench $(BIN)/python

faults: setup ## the long form of the fault experiments
	@$(BIN)/python -m pytest -m faults -o faulthandler_timeout=1500 $(ARGS)

steady: setup ## the tests ten times on fresh clones, five times beside loads; hours
	@$(BIN)/python scripts/steady.py $(ARGS)

live: setup ## the demo on a real model, by a key or a local server; it costs money
	@$(BIN)/python scripts/live.py $(ARGS)

docs: setup ## regenerate docs/reference
	@$(BIN)/python scripts/reference.py

lock: setup ## resolve the dependencies anew: uv.lock and the requirement files
	@$(BIN)/python scripts/lock.py

clean: ## remove what the other targets made
	@rm -rf .venv .venv.lock build dist .coverage* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
