# Every target sets up what it needs, on a machine with nothing but make and a Python 3.11 or newer.

VENV := .venv
BIN := $(VENV)/bin
export PYTHON

# Renewed when the project's settings change or the checkout moves.
STAMP := $(VENV)/.ready-$(shell { cat pyproject.toml; pwd; } | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help venv demo test check check-format check-lint check-types check-imports check-house bench soak format clean

help: ## list these targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

venv: $(STAMP) ## create .venv with this checkout installed in it

$(STAMP):
	@scripts/make-venv $(VENV)
	@touch $@

demo: $(STAMP) ## mirror a topic between two real Kafka clusters on this machine
	@$(BIN)/twinlog demo

# Of the tests' order. Fixed, so that a test that turns red was turned by a change; SEED=random draws one.
SEED ?= 1
ORDER = --randomly-seed=$(SEED:random=default)

# What looks at the clock runs by itself; the rest side by side, each file of real Kafka's in one process.
test: $(STAMP) ## run all tests, those against real Kafka too (ARGS=... goes to pytest)
ifdef ARGS
	$(BIN)/python -m pytest $(ORDER) $(ARGS)
else
	@failed=; \
	$(BIN)/python -m pytest -m "not real and not soak" $(ORDER) -n auto --dist worksteal || failed=1; \
	$(BIN)/python -m pytest -m "real and not timed and not soak" $(ORDER) -n 2 --dist loadfile || failed=1; \
	$(BIN)/python -m pytest -m "timed and not soak" $(ORDER) || failed=1; \
	test -z "$$failed"
endif

check: check-format check-lint check-types check-imports check-house ## all checks, in under a minute (-k goes on after a failure)

check-format: $(STAMP)
	$(BIN)/ruff format --check .

check-lint: $(STAMP)
	$(BIN)/ruff check .

check-types: $(STAMP)
	$(BIN)/mypy --strict src

check-imports: $(STAMP)
	$(BIN)/lint-imports

check-house: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_house.py

bench: $(STAMP) ## measure beside MirrorMaker 2 and raw requests (ARGS=..., see bench/README.md)
	$(BIN)/python -m bench $(ARGS)

soak: SEED = random
soak: $(STAMP) ## the long fault runs
	$(BIN)/python -m pytest -m soak $(ORDER) $(ARGS)

format: $(STAMP) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what these targets made here (the user's cache folder stays)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
