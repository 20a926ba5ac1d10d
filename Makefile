# Every target sets up what it needs: a virtual environment in .venv, the dependencies, the model.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.installed
MOONCAKE_LIBRARIES := libibverbs1 libnl-3-200 libnl-route-3-200 libnuma1 libcurl4

.PHONY: help setup verify debian test test-slow test-engines soak soak-edge test-mooncake test-browser mutation explore lint format bench bench-peers bench-engine bench-edge docs matrix power clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/' | expand -t 14

$(READY): pyproject.toml src/pagefence/engine/model/panels.c src/pagefence/edge/watching/grams.c
	@$(PYTHON) -c 'import sys; sys.exit("PageFence needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@echo "Setting up .venv (once; torch alone is about 200 MB)"
	@$(PYTHON) -m venv .venv || { echo "No virtual environment could be made. On Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[engine,dev]'
	@touch $@

setup: $(READY) ## virtual environment, dependencies and the model
	@$(BIN)/pagefence models fetch > /dev/null

verify: setup ## prove the embedded fleet (ARGS="--fault stub-transfer --guards off" to see it fail)
	@$(BIN)/pagefence verify $(ARGS)

# Alert rules are checked with promtool, and edges that share with a Redis: what lacks is installed where that is allowed,
# else its tests say that they were skipped.
DEBIAN := promtool:prometheus redis-server:redis-server
debian:
	@for each in $(DEBIAN); do command -v $${each%%:*} > /dev/null || missing="$$missing $${each##*:}"; done; \
	  if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    { apt-get update -q && apt-get install -y -q --no-install-recommends $$missing; } > /dev/null 2>&1 \
	      || echo "Not installed:$$missing; tests that need it are skipped"; fi

# Dozens of processes run what the tests test: without byte code each would compile all of it again.
test: export PYTHONDONTWRITEBYTECODE =
test: setup debian ## the test suite, under five minutes on two cores
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-slow: setup ## what needs minutes: token parity, detection power
	$(BIN)/python -m pytest -m slow $(ARGS)

test-engines: setup ## real vLLM, SGLang and llama-server, asked by gate and probes (RIGS=FOLDER; docs/guides/gate.md)
	PAGEFENCE_RIGS="$(or $(RIGS),$(PAGEFENCE_RIGS))" $(BIN)/python -m pytest -m engines -rs tests/engines $(ARGS)

soak: setup ## a quarter of an hour of full load, departures and kill -9 (ARGS="--seconds 240 --seed 7")
	$(BIN)/python -m tests.soak $(ARGS)

soak-edge: setup ## the edge before upstreams that die, hang and lie, five minutes (ARGS="--seconds 60 --seed 7 --clients 50")
	$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[edge]'
	$(BIN)/python -m tests.edge.soak $(ARGS)

test-mooncake: setup ## the second way between prefill and decode; installs Mooncake, and its libraries if root
	$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[mooncake]'
	@$(BIN)/python -c 'import mooncake.engine' 2> /dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -q $(MOONCAKE_LIBRARIES); } \
	  || { echo "Mooncake links libraries that are missing. As root: apt-get install $(MOONCAKE_LIBRARIES)"; exit 1; }
	$(BIN)/python -m pytest -m mooncake $(ARGS)

test-browser: setup ## the HTML report and a page's fetch in headless Chromium; installs playwright, and Debian's chromium if root (ARTEFACTS=FOLDER)
	$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[browser]'
	@command -v chromium chromium-browser google-chrome > /dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -q chromium; } \
	  || { echo "A browser is missing. On Debian, as root: apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -m browser -rs tests/browser $(if $(ARTEFACTS),--artefacts "$(ARTEFACTS)") $(ARGS)

mutation: setup ## break pool/ and protocol/ in 2,000 ways and see that a test notices; goes on where it was stopped
	@nice -n 19 $(BIN)/python -m tests.mutation $(ARGS)

explore: setup ## search the protocol in every short world, under a minute
	@$(BIN)/pagefence explore $(ARGS)

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

format: $(READY) ## rewrite the sources as ruff wants them
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

bench: $(READY) ## measured tables: what digests, zeroing, frames, one-sided writes and a hand-off cost
	$(BIN)/python -m bench.digest
	$(BIN)/python -m bench.handoff

bench-peers: setup ## vLLM, transformers and llama-server to compare with, in the cache: 5 GB, a quarter of an hour
	$(BIN)/python -m bench.peers

bench-engine: setup ## this engine beside vLLM, llama-server, transformers; what isolation costs; sets the peers up (ARGS="--help")
	$(BIN)/python -m bench.engine --write docs/reference/performance.md $(ARGS)

bench-edge: setup ## the edge beside LiteLLM's proxy and sglang-router; sets them up, nginx and wrk too if root (ARGS="--help")
	$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[edge]'
	$(BIN)/python -m bench.edge $(ARGS)

docs: $(READY) ## regenerate the generated pages
	$(BIN)/python -m pagefence.protocol.table > docs/reference/protocol.md
	$(BIN)/python -m pagefence.probes.gate.rules > docs/reference/gate-rules.md
	$(BIN)/python -m pagefence.watch.reference > docs/reference/watch-metrics.md
	$(BIN)/pagefence lab traces docs/reference

matrix: setup ## every fault against every detector, the real engine too: over an hour; goes on where it was stopped
	$(BIN)/pagefence lab matrix --engine --probes --results docs/reference/matrix.json \
	  --markdown docs/reference/matrix.md --svg docs/reference/matrix.svg $(ARGS)

power: setup ## how often each fault is found, and false alarms: hours; goes on where it was stopped (ARGS="--fault NAME --clean 0")
	$(BIN)/pagefence lab power --state docs/reference/power.jsonl --stop-early $(ARGS)
	$(BIN)/pagefence lab power --state docs/reference/power.jsonl --report docs/reference/power.md

clean: ## remove what these targets made here
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
