# Requires Python 3.11 or newer and pip; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
MARK := $(VENV)/.ready
# Idle OpenMP threads sleep instead of spinning, which is faster if other processes use the cores.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test test-all test-slow test-attack lint browser tables docs figures bench test-gpu clean

## demo: set up, train a PTN and a plain CNN on real digits, write out/quickstart.png
demo: $(MARK)-demo
	$(BIN)/ptn quickstart -o out

## test: lint, types and the quick tests
test: lint
	$(BIN)/python -m pytest -n 2

## test-all: the quick and the slow tests
test-all: test test-slow

test-slow: $(MARK)-dev
	$(BIN)/python -m pytest -m slow -n 2

## test-attack: damaged files, bad command lines and killed training runs, with a fixed seed
test-attack: $(MARK)-dev
	$(BIN)/python -m pytest -m attack -n 2 tests/attack

lint: $(MARK)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

## browser: Chromium and npm for the tests of the page, if there are none: the system's, or else Playwright's Chromium
browser: $(MARK)-dev
	@apt=; if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then apt=yes; fi; \
	install() { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$$@"; }; \
	command -v chromium chromium-browser google-chrome > /dev/null || \
	  if [ $$apt ]; then install chromium fonts-dejavu-core; else $(BIN)/playwright install --with-deps chromium; fi; \
	command -v npm > /dev/null || if [ $$apt ]; then install npm; else echo "npm is missing" >&2; exit 1; fi

# onnxruntime-web for the page in the browser alone, axe-core for its tests
node_modules: package.json
	npm install --no-package-lock --ignore-scripts --no-audit --no-fund --silent
	@touch $@

## tables: update the tables in README and docs from experiments/results/
tables: $(MARK)-dev
	$(BIN)/python -m experiments report $(foreach page,$(shell grep -rl '^<!-- report:' README.md docs),--page $(page))

## docs: the documentation as a site, into site/; broken links and references are errors
docs: $(MARK)-dev node_modules
	$(BIN)/mkdocs build --strict

## bench: the suites for a CPU, into benchmarks/ and docs/performance.md; about ten minutes
bench: $(MARK)-dev
	$(BIN)/python -m experiments bench sampling registration inference scaling training --device cpu -o benchmarks
	$(BIN)/python -m experiments bench --page docs/performance.md

## figures: draw the figures of the documentation into docs/images
figures: $(MARK)-dev
	$(BIN)/python -m experiments figures -o docs/images

## test-gpu: tests/gpu on this machine's GPU, into benchmarks/gpu_tests.json; without .venv with $(PYTHON)
test-gpu:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tests/gpu/run.py

clean:
	rm -rf $(VENV) node_modules build out site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ptn needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(MARK)-demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[data,figures]'
	@touch $@

# timm requires torchvision, whose dependencies could replace torch: install it without them.
$(MARK)-dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt --no-deps torchvision
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@
