# Everything a fresh machine needs: Python >= 3.11, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The versions that the tests passed with; `make test CONSTRAINTS=` takes the newest.
CONSTRAINTS ?= -c constraints.txt
# Of `make gpu`: what to run, and where its results go.
STAGES ?= right,fast,size
OUTPUT ?= gpu

.DEFAULT_GOAL := help
.PHONY: help cpu install demo test pytest soak lint docs benchmark gpu wheels clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

cpu:  ## PyTorch for CPUs into .venv, before install takes that for GPUs
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(VENV) --torch-backend=cpu $(CONSTRAINTS) torch torchvision

install: $(VENV)/installed  ## install into .venv

demo: install  ## train the spatial transformer on drawn shapes, show what it writes and where it looks; then caption photographs
	$(BIN)/python -m captioning.run experiment=demo
	$(BIN)/python -m captioning.predict experiments/photographs

test: install  ## linters, type checker and all tests, beside each other; the tests four at a time: many wait for processes of their own
	@$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=4 --dist=worksteal

soak: install  ## the long trials: twenty kills at random moments; the recipes and COCO's table in miniature; 1,000 inputs to each law
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m soak --numprocesses=2 --dist=worksteal

lint: install  ## linters and type checker only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## all pages and a table of every setting as a site, into site/
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) --editable '.[docs]'
	$(BIN)/python -m mkdocs build --quiet --strict --config-file experiments/docs/mkdocs.yml

benchmark: install  ## captions/s and images/s of this machine
	$(BIN)/python -m experiments.throughput.benchmark

gpu:  ## try, time and train on this machine's GPU, in twelve minutes, by its own python3: needs no install, network or Java
	$(PYTHON) experiments/gpu/stages.py --stages $(STAGES) --output $(OUTPUT)

wheels:  ## fetch the packages that a machine for `make gpu` may lack, into wheels/
	$(PYTHON) experiments/gpu/wheels.py

clean:  ## remove what install and the tools made, but no runs
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
