# make demo   set up the package and its extras, log the example model and draw it
# make test   set up everything and run the tests
# make help   the rest

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PACKAGE := $(VENV)/.package
READY := $(VENV)/.ready
ZOO := $(VENV)/.zoo
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Chromium for the tests of the page; where it can't be installed they are skipped, and say so.
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser)

.PHONY: help demo test browser package frameworks kills handover ray cloud hot lint viewer-types viewer-tests docs corpora fuzz interrupts zoo versions bench bench-parts bench-gate gallery compare-pairs against clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 13

demo: $(PACKAGE)  ## set up the package and its extras, log the example model and draw it
	$(RUN) examples/demo.py

test: $(READY) browser lint docs  ## set up everything, check style and types, build the docs, run the tests
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2

browser:  ## install the browser that the tests of the page need, if it is missing and can be
ifeq ($(CHROMIUM),)
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then (apt-get update -qq && apt-get install -y -qq chromium >/dev/null) || echo "chromium could not be installed: the tests of the page will be skipped"; \
	else echo "no chromium, and not root on Debian: the tests of the page will be skipped"; fi
endif

package: $(READY)  ## build the sdist and the wheel into dist, check them with twine, and try the wheel where nothing else is installed
	rm -rf dist
	$(RUN) -m hatchling build
	$(PYTHON) -m venv $(VENV)-twine && $(VENV)-twine/bin/pip install --quiet twine
	$(VENV)-twine/bin/twine check --strict dist/*
	$(RUN) -m pytest tests/test_package.py

# Without dependencies, which would bring a great deal; what they really need is there or named here.
frameworks: $(READY)  ## the tests with accelerate and PyTorch Lightning
	$(RUN) -m pip install --quiet --no-deps accelerate psutil pytorch-lightning lightning-utilities torchmetrics
	$(RUN) -m pytest -m frameworks tests/test_compatibility.py

kills: $(READY)  ## kill processes that extract, fifty times, and resume; Ray and S3 have their own: make ray, make cloud
	OMP_NUM_THREADS=1 $(RUN) -m pytest -s -m kills tests/extraction

handover: $(READY)  ## the tests and examples with rsatoolbox and scikit-learn
	$(RUN) -m pip install --quiet rsatoolbox scikit-learn
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m handover tests/extraction tests/test_examples.py tests/test_notebooks.py

ray: $(READY)  ## the tests of tl.extract on Ray, with workers, nodes and drivers that are killed
	$(RUN) -m pip install --quiet ray
	OMP_NUM_THREADS=1 $(RUN) -m pytest -s -m ray tests/extraction tests/test_examples.py

cloud: $(READY)  ## the tests of tl.extract with an S3 server on this machine
	$(RUN) -m pip install --quiet s3fs boto3 "moto[server]"
	OMP_NUM_THREADS=1 $(RUN) -m pytest -s -m cloud tests/extraction

hot: $(READY)  ## compile the hot path again, after a change of its C
	$(RUN) hatch_build.py

lint: $(READY)  ## style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

viewer-types:  ## check the types of the page's viewer with TypeScript (needs node and npm)
	npm install --silent --no-save --prefix $(VENV)/.node typescript
	$(VENV)/.node/node_modules/.bin/tsc -p src/torchlens/page/viewer

viewer-tests:  ## the unit tests of the page's viewer (needs node 20 or newer, and nothing else)
	node --test tests/page/viewer/*.test.mjs

docs: $(READY)  ## build the documentation site into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

corpora: $(READY)  ## log and validate PyTorch's operator and module databases, write docs/corpora.md (resumable)
	$(RUN) -m tests.corpora $(if $(FRESH),--fresh)

interrupts: $(READY)  ## interrupt logs 2,000 times at random moments and look for anything that stays changed
	$(RUN) -m tests.interrupts

zoo: $(READY) $(ZOO)  ## log and validate the models of public zoos, write docs/zoo.md (resumable)
	$(RUN) -m tests.zoo $(if $(FRESH),--fresh)

fuzz: $(READY)  ## 50,000 damaged and hostile bundles and recordings (resumable; CASES=1000: fewer)
	$(RUN) -m tests.fuzz.functions
	OMP_NUM_THREADS=1 $(RUN) -m tests.fuzz --cases $(or $(CASES),50000) $(if $(FRESH),--fresh)

# Each environment takes some minutes and several gigabytes, and is removed when its tests have run.
versions: $(READY)  ## the tests with other versions of torch and Python, write docs/versions.md (TORCH=2.8.0 PYTHON=python3.12: one; LOWEST=1; AGAIN=1)
	$(RUN) -m tests.versions $(if $(FRESH),--fresh) $(if $(LOWEST),--lowest) $(if $(AGAIN),--again) $(if $(TORCH),--torch $(TORCH) --python $(if $(filter python3,$(PYTHON)),python3.11,$(PYTHON)))

bench: $(READY)  ## what logs cost against the plain forward and other tools, write benchmarks/results.md (resumable)
	$(RUN) -m benchmarks $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

bench-parts: $(READY)  ## what single parts cost: full log, fastlog, graph passes, saving and loading, drawing, validation
	$(RUN) -m benchmarks.overhead
	$(RUN) -m benchmarks.fastlog
	$(RUN) -m benchmarks.graph
	$(RUN) -m benchmarks.persist
	$(RUN) -m benchmarks.draw
	$(RUN) -m benchmarks.page
	$(RUN) -m benchmarks.validate
	$(RUN) -m benchmarks.compare
	$(RUN) -m benchmarks.extract

against: $(READY)  ## edits bit for bit against hooks, nnsight and pyvene, what each tool refuses, what one edit costs
	$(RUN) -m benchmarks.against

compare-pairs: $(READY) $(ZOO)  ## compare the pairs of runs whose truth is known, print a table of what was found
	OMP_NUM_THREADS=1 $(RUN) -m tests.comparing

bench-gate: $(READY)  ## fail if the hot path has become slower (ACCEPT=1: these figures from now on)
	$(RUN) -m benchmarks.gate $(if $(ACCEPT),--accept)

gallery: $(READY)  ## draw known models into docs/gallery
	$(RUN) examples/gallery.py

clean:  ## remove the environments, caches and what was built
	rm -rf $(VENV) $(VENV)-twine .venv-peers dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Without their dependencies, which would replace torch or the hub client; what they really need follows.
$(ZOO): $(READY)
	$(RUN) -m pip install --quiet --no-deps timm torch_geometric diffusers
	$(RUN) -m pip install --quiet aiohttp importlib_metadata psutil pyparsing requests
	touch $@

# The package with its extras, which is all that the demo needs.
$(PACKAGE): constraints.txt pyproject.toml hatch_build.py $(wildcard src/torchlens/capture/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed; name one: make demo PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet hatchling editables setuptools
	$(RUN) -m pip install --quiet --no-build-isolation --editable ".[tables,graphs,png]"
	touch $@

# What tests, lint and docs need.
# torchvision comes without its dependencies: its requirement names a build of torch that not every machine has.
$(READY): $(PACKAGE)
	$(RUN) -m pip install --quiet --no-deps torchvision
	$(RUN) -m pip install --quiet pillow transformers xarray pytest pytest-xdist hypothesis ruff mypy
	$(RUN) -m pip install --quiet expecttest scipy playwright pygraphviz
	$(RUN) -m pip install --quiet mkdocs-material mkdocstrings-python nbclient nbformat ipykernel
	touch $@
