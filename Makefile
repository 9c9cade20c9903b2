# Every target sets up its own .venv first; Python 3.11 or newer is all that has to be there (make PYTHON=... chooses one).
.DEFAULT_GOAL := help
.PHONY: help demo test soak lint type bench clean venv-demo venv-dev

# Worker processes of the test run. Each has a Redis and job processes of its own, and half of the time waits for them: 4 on two cores.
N ?= 4
# What `make test` runs and with which extra flags: make test TESTS=tests/store ARGS="-x -k claim"
TESTS ?= tests
ARGS ?=
# Seconds that `make soak` takes.
TICKS ?= 300

export PYTHON
BIN := .venv/bin

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: venv-demo ## everything at once, with a built-in Redis: watch jobs run
	@$(BIN)/python run_worker.py demo

test: venv-dev ## all tests, against a real Redis of their own (TESTS=, ARGS=, N= narrow it)
	@$(BIN)/python -m pytest -q -n $(N) --dist worksteal $(TESTS) $(ARGS)

.PHONY: test-es
test-es: venv-dev ## the Elasticsearch sink against a real one, FUSION_TEST_ES_URL
	@$(BIN)/python -m pytest -q tests/es $(ARGS)

soak: venv-dev ## five minutes of one tick a second while schedulers are killed: 300 jobs (TICKS= for more); relays killed 50 times
	@FUSION_SOAK_TICKS=$(TICKS) $(BIN)/python -m pytest -q -s tests/scheduler/test_chaos.py $(ARGS)
	@FUSION_TEST_SOAK=1 $(BIN)/python -m pytest -q -s tests/relay/test_kills.py $(ARGS)

lint: venv-dev ## style, formatting, import layers, file sizes
	@failed=0; \
	$(BIN)/ruff check --output-format concise . || failed=1; \
	$(BIN)/ruff format --check --output-format concise . || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	$(BIN)/python tools/check_sizes.py || failed=1; \
	exit $$failed

type: venv-dev ## mypy --strict
	@$(BIN)/mypy

bench: venv-dev ## Fusion beside its peers, figures and ratios
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.schedule

clean: ## remove .venv, caches and build products
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv-demo:
	@sh tools/venv.sh embedded

venv-dev:
	@sh tools/venv.sh dev
