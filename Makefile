# Paceline. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
# Another index for torch, e.g. make demo TORCH_INDEX="--index-url <your index of CPU wheels>"
TORCH_INDEX ?=
TORCH  ?= torch>=2.10,<3
BIN    := $(VENV)/bin
DATA   ?=
EPOCHS ?=
PAGES  ?=
PARTS  ?=
SECOND_CHANCE ?=
KINDS  ?=
ROUNDS ?=
KILLS  ?=
SEED   ?=
SCHEDULES ?=
SOURCE ?=
CASES  ?=
SOAK   ?=
OVERLAY   ?= demo
# In place of an overlay: the settings of a run, and the profile of the platform
CONFIG    ?=
PROFILE   ?=
NAMESPACE ?= paceline
# The run's name: of a new one, in place of the overlay's; otherwise needed where the namespace has several
RUN       ?=
WORKERS   ?=
POLICY    ?=
# With OVERLAY=script: a training script of yours, and its arguments
SCRIPT    ?=
ARGS      ?=
OF_CONFIG  = $(or $(CONFIG),$(OVERLAY)) $(if $(PROFILE),--profile $(PROFILE))
OWN_SCRIPT = $(if $(SCRIPT),--script $(SCRIPT)) $(if $(ARGS),-- $(ARGS))
OF_RUN     = $(if $(RUN),--run $(RUN))
OUT       ?= models
RELEASE   ?= release
E2E_DIGITS ?=
TESTS  ?= e2e
CLUSTER ?= .ci/kind
# Images (docs/run/images.md): the program that builds them, what they are called, what they stand on, and more flags for the build
ENGINE ?=
FOUND_ENGINE = $(or $(ENGINE),$(shell for found in docker podman buildah; do $$found info >/dev/null 2>&1 && echo $$found && break; done))
REGISTRY ?= localhost
TAG    ?= 0.1.0
OWN_IMAGE = $(if $(filter command environment,$(origin REGISTRY) $(origin TAG)),--image $(REGISTRY)/paceline-server:$(TAG))
OWN_IMAGES = $(if $(filter command environment,$(origin REGISTRY)),--registry $(REGISTRY)) $(if $(filter command environment,$(origin TAG)),--tag $(TAG))
IMAGES ?= server worker-slim sharder worker
BASE_IMAGE ?= python:3.11-slim-bookworm
PIP_CONF ?=
BUILD_FLAGS ?=
comma  := ,

.DEFAULT_GOAL := help
.PHONY: help setup spark demo test nightly mutants schedules chaos check licences audit docs-blocks kube-score bench experiments protos pages docs docs-serve docs-pictures lock images release clean \
  deploy run status logs dashboard scale set stop key put-data fetch-model doctor teardown purge e2e e2e-images

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready ## a virtual environment with everything (5 GB with torch; two minutes)

$(VENV)/.ready: $(VENV)/.cli
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX) "$(TORCH)"
	touch $@

$(VENV)/.cli: requirements.lock pyproject.toml k8s/pyproject.toml papers/pyproject.toml studies/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paceline needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable k8s --editable papers --editable studies
	touch $@

spark: $(VENV)/.spark ## pyspark beside it (430 MB, a minute), for the sharder's spark engine; it needs Java 17 or newer

$(VENV)/.spark: requirements-spark.lock | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements-spark.lock
	touch $@

demo: setup ## train for real: servers, workers and evaluator, three policies, slow workers (DATA=, EPOCHS= for CIFAR-10)
	$(BIN)/paceline demo $(if $(DATA),--data $(DATA)) $(if $(EPOCHS),--epochs $(EPOCHS))

# Compiled once, not by each of its processes; four at a time, since many of them wait. SECOND_CHANCE=yes is for CI alone.
test: setup ## the tests, in six to eight minutes on two cores; then the slowest of them, and the CPU time of each folder
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 4 --dist loadfile -rfEs --durations=30 --cpu \
	  $(if $(SECOND_CHANCE),--cache-clear || $(BIN)/python -m tools.second_chance $$?)

nightly: setup spark $(VENV)/.docs ## what `make test` has no time for, each part's result in tests/nightly.md (hours; PARTS= for some of them)
	$(BIN)/python -m tools.nightly $(PARTS)

mutants: setup ## each defect of tests/mutants/mutants.yaml planted in a copy, where the tests named with it must fail
	$(BIN)/python -m tests.mutants

schedules: setup ## 500 runs in virtual time for each of nine kinds, in which servers die (SEED=, SCHEDULES=)
	$(BIN)/python -m tests.chaos schedules --number $(or $(SCHEDULES),500) $(if $(SEED),--seed $(SEED))

chaos: setup ## hours of faults, then the reliability report (KINDS= ROUNDS= SCHEDULES= CASES= SOAK=seconds; SEED= replays rounds)
	$(BIN)/python -m tests.chaos all $(KINDS) $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(KILLS),--kills $(KILLS)) \
	  $(if $(SCHEDULES),--number $(SCHEDULES)) $(if $(CASES),--cases $(CASES)) $(if $(SOAK),--seconds $(SOAK))

check: setup ## lint, also of messages and manifests, format, types, layers, surface, stale stubs and pages, spelling, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.protos --check
	$(BIN)/python -m tools.surface
	$(BIN)/python -m tools.settings_page --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.dashboard --check
	$(BIN)/codespell
	$(BIN)/python -m tools.prose
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.manifests

kube-score: $(BIN)/kube-score ## kube-score for `make check`, by Go 1.21 or newer (a minute); no other package has it

$(BIN)/kube-score: | $(VENV)/.cli
	GOBIN="$(abspath $(BIN))" go install github.com/zegl/kube-score/cmd/kube-score@v1.20.0

licences: setup spark $(VENV)/.docs ## the licence of all that is locked; fails for one that is not accepted (tools/release/licences.yaml)
	$(BIN)/python -m tools.release.licences

audit: $(VENV)/.cli ## advisories on what is locked, from OSV or SOURCE=; "Error 69": the source could not be asked, so nothing is known
	$(BIN)/python -m tools.release.audit $(if $(SOURCE),--source $(SOURCE))

docs-blocks: setup ## the commands and code of README and docs, run for real, and what they print (minutes; PAGES= for some of them)
	$(BIN)/python -m tools.doc_blocks --run $(PAGES)

# On Kubernetes, by your kubectl; none of these needs torch here.
deploy: $(VENV)/.cli ## a run on the cluster that kubectl points to (OVERLAY=demo RUN=name NAMESPACE=paceline; CONFIG=run.yaml PROFILE=cpu; OVERLAY=script SCRIPT=train.py ARGS=)
	$(BIN)/paceline k8s deploy $(OF_CONFIG) $(OF_RUN) -n $(NAMESPACE) $(OWN_IMAGES) $(OWN_SCRIPT)

run: $(VENV)/.cli ## deploy, and follow it to the end; ends with the run's exit code
	$(BIN)/paceline k8s run $(OF_CONFIG) $(OF_RUN) -n $(NAMESPACE) $(OWN_IMAGES) $(OWN_SCRIPT)

status: $(VENV)/.cli ## where the run on the cluster is
	$(BIN)/paceline k8s status $(OF_RUN) -n $(NAMESPACE)

logs: ## the last lines of all its parts, and what they say from now on
	kubectl logs -n $(NAMESPACE) -l app.kubernetes.io/part-of=paceline$(if $(RUN),$(comma)app.kubernetes.io/instance=$(RUN)) --prefix --follow --tail=20 --max-log-requests=100 --ignore-errors

dashboard: ## Grafana of the overlay `monitoring` at http://localhost:3000, until Ctrl-C
	@kubectl get -n $(NAMESPACE) service/paceline-grafana >/dev/null || { echo "There is no Grafana in namespace $(NAMESPACE) yet." \
	  "Bring it there: kubectl apply -n $(NAMESPACE) -k k8s/overlays/monitoring" >&2; exit 69; }
	@echo "Open http://localhost:3000 (Ctrl-C ends it)"
	kubectl port-forward -n $(NAMESPACE) service/paceline-grafana 3000

scale: $(VENV)/.cli ## another number of workers while it trains (WORKERS=)
	$(BIN)/paceline k8s scale -w $(WORKERS) $(OF_RUN) -n $(NAMESPACE)

set: $(VENV)/.cli ## another policy, or another bound of it, while it trains (POLICY=ssp:5)
	$(BIN)/paceline k8s set policy=$(POLICY) $(OF_RUN) -n $(NAMESPACE)

stop: $(VENV)/.cli ## end it early but properly: its model is scored and written
	$(BIN)/paceline k8s stop $(OF_RUN) -n $(NAMESPACE)

key: $(VENV)/.cli ## write a key for workers outside the cluster (FILE=, ADDRESS=: of a node)
	$(BIN)/paceline k8s key $(if $(FILE),--out $(FILE)) $(if $(ADDRESS),--address $(ADDRESS)) $(OF_RUN) -n $(NAMESPACE)

put-data: $(VENV)/.cli ## copy a file or folder to the volume that its sharder reads (DATA=)
	$(BIN)/paceline k8s put-data $(DATA) --image $(REGISTRY)/paceline-server:$(TAG) $(if $(SIZE),--size $(SIZE)) -n $(NAMESPACE)

fetch-model: $(VENV)/.cli ## copy its models from their volume (OUT=models)
	$(BIN)/paceline k8s fetch-model --out $(OUT) $(OWN_IMAGE) $(OF_RUN) -n $(NAMESPACE)

doctor: $(VENV)/.cli ## what keeps it from going on, and what to do
	$(BIN)/paceline k8s doctor $(OF_RUN) -n $(NAMESPACE)

teardown: $(VENV)/.cli ## delete all its parts but the volumes
	$(BIN)/paceline k8s teardown $(OF_RUN) -n $(NAMESPACE)

purge: $(VENV)/.cli ## delete its volumes and token too, but not what put-data has brought (DATA=yes: that, too)
	$(BIN)/paceline k8s purge $(OF_RUN) $(if $(filter yes,$(DATA)),--data) -n $(NAMESPACE)

e2e: $(VENV)/.cli ## runs on a real cluster (KUBECONFIG=) that has the images (TESTS=e2e/test_short.py for one; E2E_DIGITS=1 where it pulls that with torch)
	E2E_DIGITS=$(E2E_DIGITS) REGISTRY=$(REGISTRY) TAG=$(TAG) $(BIN)/python -m pytest $(TESTS) -x -s --timeout=900

e2e-images: $(VENV)/.cli ## the images on the node of a cluster (KUBECONFIG= CLUSTER=.ci/kind), but those that it has from the same content (IMAGES= BASE_IMAGE=)
	REGISTRY=$(REGISTRY) TAG=$(TAG) $(BIN)/python -m e2e.images --cluster $(CLUSTER) --base $(BASE_IMAGE) $(IMAGES)

bench: setup ## speed as ratios to other systems, each part in one interleaved run (an hour; DATA= adds CIFAR-10)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --large
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.bookkeeping
	$(BIN)/python -m benchmarks.sharding
	$(BIN)/python -m benchmarks.svm
	$(BIN)/python -m benchmarks.exchange
	$(BIN)/python -m benchmarks.codecs
	-$(BIN)/python -m benchmarks.links # for Linux and root only
	$(if $(DATA),$(BIN)/python -m benchmarks.ddp --data $(DATA))

experiments: setup ## what is beside the recipes of `paceline reproduce`: defaults against plain torch, the SVM against scikit-learn, scripts (hours)
	$(BIN)/python -m paceline_papers.experiments.defaults
	$(BIN)/python -m paceline_papers.experiments.auto
	$(BIN)/python -m paceline_papers.experiments.linear
	$(BIN)/python -m paceline_papers.experiments.scripts
	$(BIN)/python -m paceline_papers.experiments.halving

protos: setup ## the stubs in paceline/v1, from protos/
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.protos

pages: setup ## what is made from the code: pages of docs/reference, the dashboard, the alerts' PrometheusRule
	$(BIN)/python -m tools.settings_page
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.dashboard

$(VENV)/.docs: requirements-docs.lock | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	touch $@

docs: pages $(VENV)/.docs ## the pages of `make pages`, then the guide as a site in build/docs/site; a link that leads nowhere fails
	$(BIN)/python -m tools.site

docs-serve: $(VENV)/.docs ## the guide at http://localhost:8000, until Ctrl-C
	$(BIN)/python -m tools.site --serve

docs-pictures: docs ## what the site looks like in Chromium, wide and narrow, light and dark: build/docs/pictures
	$(BIN)/python -m tools.site.pictures build/docs/pictures

IMAGE_LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	-c requirements.lock

lock: setup ## the lock files anew, from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra sharder --extra object-store --extra dev --extra tensorboard -o requirements.lock pyproject.toml
	echo pyspark | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -o requirements-spark.lock -
	printf 'mkdocstrings-python\nzensical\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header -c requirements.lock -o requirements-docs.lock -
	$(IMAGE_LOCK) -o docker/server.lock pyproject.toml
	$(IMAGE_LOCK) --extra object-store -o docker/object-store.lock pyproject.toml
	$(IMAGE_LOCK) --extra sparse --extra object-store -o docker/worker-slim.lock pyproject.toml
	$(IMAGE_LOCK) --extra sharder --extra object-store -o docker/sharder.lock pyproject.toml
	echo "$(TORCH)" | $(IMAGE_LOCK) --extra object-store -o docker/worker.lock pyproject.toml -
	echo setuptools | $(IMAGE_LOCK) -o docker/build.lock -

images: ## container images, built by docker, podman or buildah (IMAGES= REGISTRY= TAG= BASE_IMAGE= TORCH_INDEX= PIP_CONF=)
	@set -e; engine="$(FOUND_ENGINE)"; \
	test -n "$$engine" || { echo "No docker, podman or buildah answers. Install one, or start Docker's daemon." >&2; exit 69; }; \
	for image in $(IMAGES); do \
	  echo "$$engine builds $(REGISTRY)/paceline-$$image:$(TAG)"; \
	  BUILDAH_LAYERS=true $$engine build --file docker/Dockerfile --target $$image --tag $(REGISTRY)/paceline-$$image:$(TAG) \
	    --build-arg BASE_IMAGE="$(BASE_IMAGE)" --build-arg VERSION="$(TAG)" \
	    --build-arg REVISION="$$(git describe --always --dirty --abbrev=40 --exclude '*' || echo unknown)" \
	    $(if $(TORCH_INDEX),--build-arg TORCH="$(TORCH)" --build-arg TORCH_INDEX="$(TORCH_INDEX)") \
	    $(patsubst %,--secret=id=pip.conf$(comma)src=%,$(PIP_CONF)) $(BUILD_FLAGS) .; \
	done; \
	$$engine images | grep -E "REPOSITORY|$(REGISTRY)/paceline-.* $(TAG) "

release: setup spark $(VENV)/.docs images ## packages, images by digest, manifests, bills of materials and licences, in RELEASE=release (REGISTRY= TAG=)
	$(BIN)/python -m tools.release --engine "$(FOUND_ENGINE)" --registry $(REGISTRY) --tag $(TAG) --out $(RELEASE)

clean: ## forget the virtual environment and the runs
	rm -rf $(VENV) runs searches
