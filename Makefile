# Paceline. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
# Another index for torch, e.g. make demo TORCH_INDEX="--index-url <your index of CPU wheels>"
TORCH_INDEX ?=
TORCH  ?= torch>=2.10,<3
BIN    := $(VENV)/bin
DATA   ?=
EPOCHS ?=

.DEFAULT_GOAL := help
.PHONY: help setup spark demo test check bench experiments protos docs lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready ## a virtual environment with everything (5 GB with torch; two minutes)

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paceline needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

spark: $(VENV)/.spark ## pyspark beside it (430 MB, a minute), for the sharder's spark engine; it needs Java 17 or newer

$(VENV)/.spark: requirements-spark.lock | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements-spark.lock
	touch $@

demo: setup ## train for real: servers, workers and evaluator, three policies, slow workers (DATA=, EPOCHS= for CIFAR-10)
	$(BIN)/paceline demo $(if $(DATA),--data $(DATA)) $(if $(EPOCHS),--epochs $(EPOCHS))

test: setup spark ## all tests (those of the spark engine only where there is Java)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup ## lint, format, types, layers, stale stubs and pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.protos --check
	$(BIN)/python -m tools.settings_page --check

bench: setup ## speed as ratios to other systems, each part in one interleaved run (an hour; DATA= adds CIFAR-10)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --large
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.slicing
	$(BIN)/python -m benchmarks.bookkeeping
	$(BIN)/python -m benchmarks.sharding
	$(if $(DATA),$(BIN)/python -m benchmarks.ddp --data $(DATA))

experiments: setup ## tables of all policies and of sharding strategies, [Hogwild]'s figures (DATA= for CIFAR-10 too; hours)
	$(BIN)/python -m experiments.policies
	$(BIN)/python -m experiments.sharding
	$(BIN)/python -m experiments.sharding --data 8
	$(BIN)/python -m experiments.hogwild
	$(if $(DATA),$(BIN)/python -m experiments.policies bsp ssp:3 asp shat kbuffered --task cifar10 --data $(DATA) --model cnn --epochs 3)

protos: setup ## the stubs in paceline/v1, from protos/
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.protos

docs: setup ## docs/settings.md anew, from the code
	$(BIN)/python -m tools.settings_page

lock: setup ## the lock files anew, from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra sharder --extra dev --extra tensorboard -o requirements.lock pyproject.toml
	echo pyspark | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -o requirements-spark.lock -

clean: ## forget the virtual environment and the runs
	rm -rf $(VENV) runs searches
