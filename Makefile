# `make demo` and `make test` do all the set-up on a fresh machine with Python 3.11 or later, pip and make.
PYTHON ?= python3
BIN := .venv/bin
MARK := .venv/.installed

.PHONY: demo wheel deb manual schemas record docs test test-all test-gpu fresh boot chaos fuzz threads lint check format bench figures clean

demo: .venv/.core
	$(BIN)/superhosts demo demo

# Both wheels into dist/: the pure one, and one with machine code for this Python and this architecture. Minutes.
wheel: .venv/.core
	deploy/wheels.sh $(BIN)/python

# A Debian package into dist/, of the wheel with machine code and the packages that it needs.
deb: wheel
	deploy/deb.sh $(BIN)/python

# Before every commit.
test: .venv/.tests
	$(BIN)/pytest -n auto -m "not slow"

# And all that takes longer: brokers and browsers, commands of the documentation, rivals, more cases of every property.
test-all: test $(MARK)
	$(BIN)/pytest -n auto -m "slow or hypothesis" --hypothesis-profile thorough

# `make demo` and `make test` of the last commit on a bare Debian, as root and as another user. Needs root, debootstrap.
fresh:
	tests/fresh.sh

# On a machine with a GPU and the packages of superhosts[gpu] or [gpu13] in PYTHON: real kernels instead of simulated ones.
test-gpu:
	SUPERHOSTS_TEST_GPU=1 PYTHONPATH="src:$$PYTHONPATH" $(PYTHON) -m pytest -W default -rs \
		tests/detectors/gpu/test_gpu.py tests/detectors/test_exact.py tests/detectors/test_laws.py tests/cli/test_doctor.py \
		tests/lab/test_oracles.py tests/lab/test_rivals.py tests/detectors/test_columnsketch.py tests/detectors/test_threads.py

# The units of deploy/systemd under a real systemd, in a container of this machine's own files. Needs root and systemd-nspawn.
boot:
	/usr/bin/python3 tests/boot.py

# Two hundred rounds of faults instead of the few that `make test` makes; SUPERHOSTS_CHAOS_SEED chooses the points.
# With strace also faults at system calls. A round takes some seconds.
CHAOS_ROUNDS ?= 200
chaos: $(MARK)
	SUPERHOSTS_CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -s tests/fleet/test_chaos.py tests/fleet/test_slidingwindows.py

# All fuzz targets for MINUTES together, or one (TARGET=captures); another SEED makes other cases. CASES=300 makes so many
# of each target instead, the same on every machine.
MINUTES ?= 5
SEED ?= 1
fuzz: $(MARK)
	cd tests && ../$(BIN)/python -m fuzz --minutes $(MINUTES) --seed $(SEED) $(addprefix --target ,$(TARGET)) $(addprefix --cases ,$(CASES))

# A thousand rounds of writers and readers over every detector instead of the few that `make test` makes.
threads: $(MARK)
	SUPERHOSTS_THREAD_ROUNDS=1000 $(BIN)/pytest tests/detectors/test_threads.py

lint: $(MARK)
	$(BIN)/ruff format --check src tests benchmarks docs examples deploy hatch_build.py
	$(BIN)/ruff check src tests benchmarks docs examples deploy hatch_build.py
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test-all

# The manual pages and the reference of commands, from the texts of the help.
manual: $(MARK)
	$(BIN)/python docs/manual.py build/man docs/reference/commands.md

# Which compiled loops runs use: after a change of loops, or of what they are called with. Minutes.
record: $(MARK)
	$(BIN)/python tests/recording.py

# The JSON Schemas of rows, alert events and the dashboard's answers, from their types.
schemas: $(MARK)
	$(BIN)/python docs/schemas.py docs/reference/schemas

# The documentation as a site, in build/docs/site; a broken link is an error.
docs: $(MARK)
	$(BIN)/python docs/build.py

format: $(MARK) manual schemas
	$(BIN)/ruff format src tests benchmarks docs examples deploy hatch_build.py
	$(BIN)/ruff check --fix src tests benchmarks docs examples deploy hatch_build.py

bench: $(MARK)
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/python benchmarks/cpu.py

# The comparison of docs/explanation/results.md and its figures: the paper's experiment, then errors over memory. Half an hour on two cores.
MEMORIES := 1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,256MiB,512MiB
ROWS := benchmarks/results/compare-$(shell uname -m)
figures: $(MARK)
	$(BIN)/superhosts compare --figures docs/figures -o $(ROWS).csv
	$(BIN)/superhosts compare --windows 4 --memory $(MEMORIES) --figures docs/figures -o $(ROWS)-memory.csv

clean:
	rm -rf .venv demo build dist

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "superhosts needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv

# Bytecode that is never written is compiled at every start, a second each; containers often set this.
unexport PYTHONDONTWRITEBYTECODE
# Without --no-compile pip compiles every module of every package, also the many that nobody imports.
PIP := $(BIN)/pip install -q --disable-pip-version-check --no-compile

.venv/.core: .venv/bin/python pyproject.toml
	$(PIP) -e .
	touch $@

# Hot loops are compiled while pip installs what the tests need.
.venv/.tests: .venv/.core
	$(BIN)/python -c 'from superhosts.jit.cache import compile_all; compile_all()' >.venv/warming.log 2>&1 & compiling=$$!; \
		$(PIP) -e '.[test]' && { wait $$compiling || { cat .venv/warming.log; exit 1; }; }
	touch $@

$(MARK): .venv/bin/python pyproject.toml
	$(PIP) -e '.[dev]'
	touch $@ .venv/.core .venv/.tests
