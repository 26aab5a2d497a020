# `make` prints what there is. All targets but help see to .venv first.
.DEFAULT_GOAL := help
.PHONY: help setup programs demo test test-fast cover check bench faults defects steady live screenshots docs captures lock clean

BIN := .venv/bin
FAST := $(addprefix tests/,facts session kinds mission model log fleet vault notify house/test_tidy.py)
# A worker that ends (a hung test ends its own) fails the run: with `loadfile`, xdist waits forever for a new worker.
SIDE_BY_SIDE := -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv with holdfast in it; install the system packages it needs
	@scripts/setup

programs: setup
	@scripts/test_programs

demo: setup ## watch an agent rebuild a real library, be killed, wake, and finish
	@$(BIN)/holdfast demo $(ARGS)

test: programs ## run all tests, four files at a time; ROOM=log runs those of one room
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(if $(ROOM),tests/$(ROOM)) $(ARGS)

test-fast: setup ## run the tests without sandboxes, kills, and long searches: about a minute
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not faults and not real" --hypothesis-profile=fast $(FAST) $(ARGS)

cover: programs ## run the tests and list the lines and branches that none reaches
	@$(BIN)/coverage run -m pytest -q $(ARGS) && $(BIN)/coverage combine -q && $(BIN)/coverage report

check: setup ## check format, lint, import contracts, types, the reference
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/python scripts/reference.py --check

bench: programs ## run every measurement of bench/, one after the other
	@scripts/bench $(BIN)/python

faults: programs ## run the long fault experiments
	@$(BIN)/python -m pytest -m faults -o faulthandler_timeout=1500 $(ARGS)

defects: programs ## plant 30 defects, one at a time, and see that the tests find each
	@$(BIN)/python scripts/defects.py $(ARGS)

steady: programs ## run the tests ten times on fresh clones, five of them beside loads (hours)
	@$(BIN)/python scripts/steady.py $(ARGS)

live: setup ## run the demo on a real model, by a key or a local server (costs money)
	@$(BIN)/python scripts/live.py $(ARGS)

screenshots: programs ## write pictures of all pages to build/screenshots (needs chromium)
	@$(BIN)/python scripts/screenshots.py $(ARGS)

docs: setup ## regenerate docs/reference
	@$(BIN)/python scripts/reference.py

captures: setup ## capture every view and help at 80 and 60 columns (tests/captures/golden)
	@$(BIN)/python -m tests.captures

lock: setup ## resolve the dependencies again: uv.lock and the requirement files
	@$(BIN)/python scripts/lock.py

clean: ## remove what the other targets made
	@rm -rf .venv .venv.lock build dist .coverage* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
