# Every chore of the project is one word of this file; CI types the same words.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-all rados-test python-test python-bench fuzz soak deps bench lint doc fmt golden compat install-c clean rust

# In CI the versions of Cargo.lock are built as they stand; elsewhere an edited Cargo.toml may update it.
LOCKED := $(if $(filter true,$(CI)),--locked)

# Tests that have a long form, by their file names (CONTRIBUTING.md, "Long tests").
LONG_TESTS := $(sort $(basename $(notdir $(wildcard crates/*/tests/*_all.rs))))

PREFIX ?= /usr/local

# Where things are built, and where `make python-test` installs the module and what its tests use.
TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON := $(abspath $(TARGET))/python/bin/python

# As fast as with all that a compiler can do, and built with the tests.
SIMULATOR := $(TARGET)/debug/forebay-sim

# Where `make soak` keeps what its runs came to.
SOAK_FILE ?= scratch/soak.json
PLAY_SEEDS = $(SIMULATOR) --soak $(SOAK_FILE) $(if $(SOAK_SECONDS),--seconds $(SOAK_SECONDS)) $(SOAK)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: rust ## the whole path on this machine in about 20 s, one drive destroyed half way (DEMO="..." adds options)
	cargo run $(LOCKED) --release -p forebay -- demo $(DEMO)

test: rust ## all tests, with Rust and a C compiler alone; what a machine lacks is said and skipped
	tools/run-tests.sh $(LOCKED) --workspace

test-all: rust ## after `make test`: the tests that have a long form, in that form, and every planted mistake; SOAK_SECONDS=300: then seeds, too (after `make deps`)
	@test -n "$(LONG_TESTS)" || { echo "there is no tests/*_all.rs: nothing would be tested" >&2; exit 1; }
	cargo build $(LOCKED) --workspace --bin forebay-sim
	@# The long tests mostly wait: the simulator has the processors meanwhile.
	@mkdir -p $(dir $(SOAK_FILE))
	export FOREBAY_TEST_ALL=1; failed=; played=$(TARGET)/played.txt; \
	nice sh -c '$(SIMULATOR) --planted all --seeds 1000 $(if $(SOAK_SECONDS),&& $(PLAY_SEEDS))' >"$$played" 2>&1 & \
	tools/run-tests.sh $(LOCKED) --workspace $(addprefix --test ,$(LONG_TESTS)) || failed=1; \
	wait $$! || failed=1; \
	cat "$$played"; \
	test -z "$$failed"

rados-test: rust ## stores in the pools of a Ceph cluster, and on its file system; it is started for them (after `make deps`)
	@# Each starts a cluster, which has work for all processors.
	TEST_BINARIES_AT_ONCE=1 tools/run-tests.sh $(LOCKED) --workspace --features forebay-media-rados/link,forebay/rados --test pools --test rados --test rados_hosts --test shared_files

python-test: $(PYTHON) ## the Python module: built and installed into an environment of its own, its tests against real servers (Python 3.11, venv)
	export CARGO_TARGET_DIR=$(abspath $(TARGET)); \
	cargo clippy $(LOCKED) --manifest-path python/Cargo.toml --all-targets -- -D warnings; \
	cargo build $(LOCKED) --workspace --lib --bin forebay; \
	MATURIN_PEP517_ARGS="$(LOCKED) --profile dev" $(PYTHON) -m pip install --quiet --disable-pip-version-check './python[test]'
	FOREBAY_C_LIBRARIES=$(abspath $(TARGET))/debug FOREBAY_BINARY=$(abspath $(TARGET))/debug/forebay $(PYTHON) -B -m pytest -q -p no:cacheprovider python/tests

python-bench: $(PYTHON) ## reads of 1 MiB by Python beside the Rust client; the result goes to bench/python-reads.json
	cargo build $(LOCKED) --release -p forebay -p forebay-client --bin forebay --example read_file
	MATURIN_PEP517_ARGS=$(LOCKED) $(PYTHON) -m pip install --quiet --disable-pip-version-check './python[test]'
	FOREBAY_BINARY=$(abspath $(TARGET))/release/forebay $(PYTHON) -B python/bench/reads.py --native $(TARGET)/release/examples/read_file --out bench/python-reads.json

$(PYTHON): | rust
	python3 -m venv $(abspath $(TARGET))/python

fuzz: ## after `make deps`: fuzz each decoder for FUZZ_SECONDS=10 (FUZZ="server mdf" for some of them)
	tools/fuzz.sh

soak: rust ## play seeds of the simulator on all cores; goes on where it ended (SOAK_FILE=..., SOAK_SECONDS=300, SOAK="--seed 1000", Ctrl-C)
	@mkdir -p $(dir $(SOAK_FILE))
	cargo build $(LOCKED) --workspace --bin forebay-sim
	$(PLAY_SEEDS)

deps: ## install what tests, fuzzing and benchmarks use: Debian packages (12 or 13; root, or sudo), two crates, a nightly compiler
	tools/install-packages.sh
	@# The one compiles while the other waits for the network.
	tools/install-nightly.sh & tools/install-crates.sh && wait $$!

bench: rust ## measure against fio and iperf3 (after `make deps`); results go to bench/ (BENCH="engine" for one)
	cargo build $(LOCKED) --release -p forebay -p forebay-bench
	cargo run $(LOCKED) --release -p forebay-bench -- --out bench $(BENCH)

lint: rust ## formatting, clippy, documentation, direction of dependencies, texts
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path python/Cargo.toml --check
	cargo metadata $(LOCKED) --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null # its lock file knows what the crates use
	cargo metadata $(LOCKED) --manifest-path python/Cargo.toml --format-version 1 >/dev/null
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	cargo clippy $(LOCKED) -p forebay -p forebay-media-rados --features forebay/rados --all-targets -- -D warnings
	cargo clippy $(LOCKED) -- -D warnings # the product as it is built, without the simulator's mistakes
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --no-deps --quiet
	tools/check-dependencies.py
	tools/check-texts.py

doc: rust ## the documentation of the crates, as HTML
	cargo doc $(LOCKED) --workspace --no-deps

fmt: rust ## format the code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cargo fmt --manifest-path python/Cargo.toml

golden: rust ## write the golden files of format and protocol again (only with a new version of either)
	FOREBAY_GOLDEN=write FOREBAY_BLESS=1 cargo test -p forebay-format -p forebay-protocol --test golden

compat: rust ## keep images of stores of the present format version in testdata/compat (once for each version, before its release)
	FOREBAY_COMPAT=write cargo test -p forebay --test compat images_of_the_present_version_can_be_made

install-c: rust ## install the library for C and C++ below PREFIX=/usr/local (DESTDIR is put before it)
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) tools/install-c.sh

clean: ## remove what was built
	cargo clean
	cargo clean --manifest-path python/Cargo.toml

rust:
	@tools/check-rust.sh
