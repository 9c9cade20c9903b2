# Every target sets up its own .venv first; Python 3.11 or newer is all that has to be there (make PYTHON=... chooses one).
.DEFAULT_GOAL := help
.PHONY: help release version matrix demo test test-long test-gate test-acl test-cluster test-pool test-thread test-asyncio test-es test-browser test-django test-rq screenshots crash teeth soak soak-chaos soak-walks soak-executors soak-rq nightly flaky check lint lua type reference docs bench bench-smoke clean bytecode venv-demo venv-dev venv-browser venv-bench venv-release venv-docs

# Worker processes of the test run. Each has a Redis and job processes of its own, and half of the time waits for them: 4 on two cores.
N ?= 4
# What `make test` runs and with which extra flags: make test TESTS=tests/store ARGS="-x -k claim"
TESTS ?= tests
ARGS ?=
# Of `make crash`: process, pool, thread or asyncio; none: all four.
EXECUTOR ?=
# Of `make soak`: seeds and jobs of the chaos, flags for its workers and short jobs besides (SOAK_WORKER_ARGS="--horses 2" SOAK_RUSH=80000),
# ticks of one second.
SEEDS ?= 1 2 3
SOAK_JOBS ?= 10000
TICKS ?= 300
# What has more seeds, rounds or steps there than in `make test-long`.
WALKS := tests/store/test_limit_walks.py tests/store/test_unique_walks.py tests/store/test_batch_walks.py tests/store/test_unique_leak.py tests/store/test_batch_large.py \
	tests/store/test_dags.py tests/domain/test_large_graphs.py tests/inprocess/test_stress.py tests/faults/kin/test_graphs.py tests/faults/outbox/test_kills.py tests/contrib/outbox/test_hostile.py \
	tests/worker/test_exactly_once.py tests/worker/test_blame.py tests/worker/test_crowd.py tests/worker/test_kept_logs.py tests/supervisor/test_deaths.py \
	tests/faults/model/test_model.py::test_every_call_does_what_the_model_says \
	tests/faults/model/test_tied.py::test_few_jobs_of_many_lives_are_sound_whatever_comes_in_between \
	tests/worker/test_stop_races.py tests/worker/test_long_job.py tests/worker/test_wildcards.py tests/worker/test_gates.py \
	tests/supervisor/test_limits.py tests/supervisor/test_unique.py tests/faults/trouble/test_turns_under_way.py tests/faults/trouble/test_idle_workers.py \
	tests/contrib/whole tests/relay/test_elasticsearch.py tests/cli/test_demo.py tests/benchmarks/test_figures.py tests/benchmarks/test_ab.py
# Left out of `make test-cluster`, by the ends of their names: what is not about scripts, has a client or a server of its own, or stock RQ on the same
# keys; rights and commands as they are on one Redis (tests/store/test_cluster.py has those of a cluster); and one that compares times.
OFF_CLUSTER := acl acl_audit acl_default bounds broken_promises cluster compact connections deployed_redis duties embedded embedded_home full_pools \
	interrupted keys_doc lua_build lua_names plain_and_general redis_py resp rq_beside rq_list rq_shared script_line struck_threads \
	tls_and_sentinel which_redis windows wire
ON_CLUSTER := $(filter-out $(OFF_CLUSTER:%=tests/store/test_%.py),$(wildcard tests/store/test_*.py))

# Of `make check`: what needs no Redis and no worker.
FAST := tests/unit tests/architecture
SHARE ?= 0/1
share = $(shell printf '%s\n' $(1) | awk -v share=$(SHARE) 'BEGIN { split(share, s, "/") } (NR - 1) % s[2] == s[1]')

export PYTHON
BIN := .venv/bin
# Tests start some thousand processes of Fusion: those find its bytecode made, whatever the shell says of writing any.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: venv-demo ## everything at once, with a built-in Redis: watch jobs run (CHAOS=1: its processes are killed; KEEP=1: it stays open)
	@$(BIN)/python run_worker.py demo $(if $(filter-out 0,$(CHAOS)),--chaos) $(if $(filter-out 0,$(KEEP)),--keep)

test: venv-dev bytecode ## the tests, against a real Redis of their own, in some minutes (TESTS=, ARGS=, N= narrow it)
	@$(BIN)/python -m pytest -q -n $(N) --dist worksteal -m "not long and not browser" $(TESTS) $(ARGS)

test-long: venv-dev bytecode ## the others: the crash suite, thousands of jobs, years of ticks (marked `long`)
	@$(BIN)/python -m pytest -q -n $(N) --dist worksteal -m long $(TESTS) $(ARGS)

test-gate: venv-dev bytecode ## what .ci/run runs of both: the first, and the long ones that are marked `gate`
	@$(BIN)/python -m pytest -q -n $(N) --dist worksteal -m "(not long or gate) and not browser" $(TESTS) $(ARGS)

test-acl: venv-dev bytecode ## the same as a Redis user with the least rights (docs/operations.md), nobody else being let in
	@FUSION_TEST_ACL=1 $(BIN)/python -m pytest -q -n $(N) --dist worksteal $(TESTS) $(ARGS)

test-cluster: venv-dev bytecode ## most tests of tests/store (TESTS= others) on a cluster of three servers, under a prefix with a hash tag
	@FUSION_TEST_CLUSTER=1 $(BIN)/python -m pytest -q -n $(N) --dist worksteal $(if $(filter-out tests,$(TESTS)),$(TESTS),$(ON_CLUSTER)) $(ARGS)

test-es: venv-dev ## the Elasticsearch sink against a real one, FUSION_TEST_ES_URL
	@$(BIN)/python -m pytest -q tests/es $(ARGS)

test-browser: venv-browser ## the dashboard in a real browser: FUSION_TEST_CHROMIUM, Playwright's, or the chromium on PATH (marked `browser`)
	@if $(BIN)/python -m tests.browser.chromium; then $(BIN)/python -m pytest -q -n 2 --dist worksteal -m browser tests/browser $(ARGS); \
	elif [ "$$FUSION_TEST_BROWSER" = required ]; then exit 1; else echo "skipped: the line above says what is missing"; fi

test-django: venv-dev ## tests/contrib with Django 5.2, 6.0 and 6.1, and Django's own tests of tasks (VERSIONS= narrows it; 6.1: PYTHON312=)
	@sh tools/test_django.sh

crash: venv-dev bytecode ## every way to strike at every place where a worker, fork server or job process may be (EXECUTOR=asyncio: under that alone; 20 minutes)
	@FUSION_TEST_CRASH=full FUSION_TEST_CRASH_EXECUTOR=$(EXECUTOR) $(BIN)/python -m pytest -q -n $(N) --dist worksteal tests/faults/crash/test_worker.py $(ARGS)

test-pool: venv-dev bytecode ## the tests of workers and of their troubles once more, with workers in pool mode
	@FUSION_TEST_HORSES=1 $(BIN)/python -m pytest -q -n $(N) --dist worksteal tests/worker tests/faults/trouble $(ARGS)

test-thread: venv-dev bytecode ## the tests of workers, whose jobs have threads of one process
	@FUSION_TEST_EXECUTOR=thread $(BIN)/python -m pytest -q -n $(N) --dist worksteal tests/worker $(ARGS)

test-asyncio: venv-dev bytecode ## the tests of workers, whose jobs are coroutines of one process, or threads beside them
	@FUSION_TEST_EXECUTOR=asyncio $(BIN)/python -m pytest -q -n $(N) --dist worksteal tests/worker $(ARGS)

test-rq: venv-dev ## RQ's own tests against fusion.rq, on servers of their own (VERSION=2.12.0; ARGS="--raise", "--public", "test_job.py -k meta")
	@VERSION=$(VERSION) $(BIN)/python -m tests.rq_suite $(ARGS)

teeth: venv-dev ## known mistakes are put into a copy of Fusion, and the tests must notice each (MUTANTS="a j" chooses, MUTANTS=0/4 every fourth; half an hour)
	@$(BIN)/python -m tests.faults.teeth $(MUTANTS)

soak: soak-chaos soak-walks ## half an hour: three seeds of chaos (SEEDS=, SOAK_JOBS=), power cuts, leaks, kills of others (TICKS=), the long walks

soak-chaos: venv-dev ## the first half of it: chaos, power cuts, leaks, kills
	@FUSION_TEST_SOAK=1 SEEDS="$(SEEDS)" SOAK_JOBS=$(SOAK_JOBS) SOAK_WORKER_ARGS="$(SOAK_WORKER_ARGS)" SOAK_RUSH=$(SOAK_RUSH) $(BIN)/python -m pytest -q -s tests/faults/soak/test_soak.py tests/faults/soak/test_power_loss.py tests/faults/soak/test_leak.py $(ARGS)
	@FUSION_TEST_SOAK=1 FUSION_SOAK_TICKS=$(TICKS) $(BIN)/python -m pytest -q -n 2 -rP tests/scheduler/test_chaos.py tests/relay/test_kills.py $(ARGS)

soak-walks: venv-dev ## the second half: every long walk in full (SHARE=0/3: the first third)
	@FUSION_TEST_SOAK=1 $(BIN)/python -m pytest -q -n $(N) --dist worksteal -m long $(call share,$(WALKS)) $(ARGS)

soak-executors: venv-dev bytecode ## a short chaos for each executor, and seed of SEEDS, in some minutes each
	@FUSION_TEST_SOAK=1 FUSION_TEST_SOAK_EXECUTORS="process pool thread asyncio" SEEDS="$(SEEDS)" SOAK_JOBS=1000 $(BIN)/python -m pytest -q -s tests/faults/soak/test_soak.py $(ARGS)

soak-rq: venv-dev ## stock RQ beside a fleet that is killed, ten minutes (SECONDS=600) for each of two versions (VERSION=3.0.0), ended by TERM and killed
	@FUSION_TEST_SOAK=1 SECONDS="$(SECONDS)" VERSION="$(VERSION)" $(BIN)/python -m pytest -q -s tests/faults/beside $(ARGS)

nightly: ## all that .ci/run leaves out, in 100 minutes; goes on where it was; results in .nightly/summary.md (STEPS= chooses)
	@bash .ci/nightly

check: venv-dev ## before each commit, in under 90 seconds: lint, types and the fast tests
	@$(MAKE) -s lint & linted=$$!; $(MAKE) -s type && $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not long and not browser" $(FAST) $(ARGS); tested=$$?; \
	wait $$linted && exit $$tested

flaky: venv-dev ## the list of flaky tests, and the failures that runs of .ci/run forgave
	@$(BIN)/python -m tests.kit.flaky

lint: venv-dev ## style, formatting, import layers, file sizes, words, pages
	@failed=0; \
	$(BIN)/ruff check --output-format concise . || failed=1; \
	$(BIN)/ruff format --check --output-format concise . || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	$(BIN)/python tools/check_sizes.py || failed=1; \
	$(BIN)/python -m tools.check_lua || failed=1; \
	$(BIN)/python -m tools.lua_build --check || failed=1; \
	$(BIN)/python tools/check_words.py || failed=1; \
	$(BIN)/python -m tools.check_pages || failed=1; \
	exit $$failed

release: venv-release ## what is published, into dist/: built twice and compared, checked, tried in an empty environment (DRAFT=1: no section of the CHANGELOG needed)
	@$(BIN)/python -m tools.release $(if $(filter-out 0,$(DRAFT)),--draft) $(if $(TAG),--tag "$(TAG)")

version: venv-dev ## write the number of the next release (VERSION=0.2.0) into sources, README and CHANGELOG
	@$(BIN)/python -m tools.release --version "$(VERSION)"

matrix: venv-dev ## the short suite with other Pythons, servers and clients: docs/matrix.md (ARGS="--list", "--cell CELL"; else the diagonal)
	@$(BIN)/python -m tools.matrix --workers $(N) $(or $(ARGS),--diagonal)

lua: venv-dev ## build the scripts that are sent to Redis from fusion/store/lua
	@$(BIN)/python -m tools.lua_build

type: venv-dev ## mypy --strict
	@$(BIN)/mypy

reference: venv-dev ## write what follows from the code: docs/settings.md, cli.md, api.md, http-reference.md, tables and types of options
	@$(BIN)/python tools/reference.py

docs: venv-docs ## the documentation as a site in build/docs: each warning and each link that leads nowhere is an error
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

bench: venv-bench ## all figures with their bounds, beside other queues, into benchmarks/results and the documents (40 minutes on a quiet machine)
	@$(BIN)/python -m benchmarks table --runs 3 --save $(ARGS)
	@$(BIN)/python -m benchmarks executors --runs 3 --save $(ARGS)
	@$(BIN)/python -m benchmarks peers --save
	@$(BIN)/python -m benchmarks features --save

bench-smoke: venv-bench ## whether every contender still runs; measures nothing
	@$(BIN)/python -m benchmarks peers --smoke --only rq-simple,celery-late,dramatiq,huey-priority,saq,taskiq,fusion-thread,fusion-asyncio,celery-threads
	@$(BIN)/python -m benchmarks table --smoke
	@$(BIN)/python -m benchmarks executors --smoke

clean: ## remove .venv, caches and build products
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

bytecode: venv-dev ## compile what tests start in some thousand processes (they ask for it themselves)
	@$(BIN)/python -m compileall -q fusion tasks wrappers tests/jobs tests/kit
	@$(BIN)/python -m tests.kit.bytecode

screenshots: venv-browser ## the pictures of the dashboard in docs/images, from a Redis and workers of their own; ALL=DIRECTORY: of every page, there
	@$(BIN)/python -m tools.screenshots $(if $(ALL),--all "$(ALL)")

venv-demo:
	@sh tools/venv.sh demo

venv-dev:
	@sh tools/venv.sh dev

venv-browser:
	@sh tools/venv.sh browser

venv-release:
	@sh tools/venv.sh release

venv-bench:
	@sh tools/venv.sh bench

venv-docs:
	@sh tools/venv.sh docs
