# redis-lock: run `make` to see what can be made.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Variables that may be set on the command line.
PORT ?= 6379
SERVER ?= redis-server
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_STEPS ?= 1000000
TRIALS ?= 200

target := $(abspath $(or $(CARGO_TARGET_DIR),target))
module := $(target)/release/libredis_lock.so
modules := $(PREFIX)/lib/redis/modules
shell_scripts := .ci/run scripts/install-missing scripts/run tests/servers/get tests/servers/matrix

# What the tests, the benchmark and the fuzzer run.
export REDIS_LOCK_MODULE := $(module)
export REDIS_LOCK_SERVER := $(if $(findstring /,$(SERVER)),$(abspath $(SERVER)),$(SERVER))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: PORT=%s SERVER=%s PREFIX=%s FUZZ_SECONDS=%s SOAK_STEPS=%s TRIALS=%s\n' '$(PORT)' '$(SERVER)' '$(PREFIX)' '$(FUZZ_SECONDS)' '$(SOAK_STEPS)' '$(TRIALS)'

.PHONY: deps
deps: ## install what is missing to build and run: redis-server, a C compiler, libclang
	@scripts/install-missing cargo cc libclang redis-server

.PHONY: build
build: deps ## build the module, target/release/libredis_lock.so
	cargo build --release --locked --package redis-lock

.PHONY: run
run: build ## start a redis-server with the module on 127.0.0.1:PORT in the foreground
	@scripts/run "$$REDIS_LOCK_SERVER" '$(module)' '$(PORT)'

.PHONY: test
test: build ## run every test on SERVER, by default the installed redis-server
	cargo test --workspace --locked --no-fail-fast

.PHONY: test-matrix
test-matrix: build ## run the integration tests on Redis 7.0 and 8.0, Valkey 8.0, 8.1 and 9
	tests/servers/matrix

.PHONY: lint
lint: deps ## check format, lints, documentation, licences and scripts
	@scripts/install-missing shellcheck
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --document-private-items --locked
	cargo deny --locked check licenses bans sources
	shellcheck $(shell_scripts)

.PHONY: audit
audit: ## look the dependencies up in the database of security advisories
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny --locked check advisories

.PHONY: fuzz
fuzz: build ## send random commands to a live server for FUZZ_SECONDS
	cargo run --release --locked --package redis-lock-fuzz -- --seconds $(FUZZ_SECONDS)

.PHONY: soak
soak: build ## play SOAK_STEPS random steps with the waiting lines of a live server
	cargo run --release --locked --package redis-lock-soak -- --steps $(SOAK_STEPS)

.PHONY: outage
outage: build ## count double holds in TRIALS outages of each kind, with and without the module
	cargo run --release --locked --package redis-lock-outage -- --trials $(TRIALS)

.PHONY: bench
bench: build ## measure what the commands cost, each figure beside its target (on a quiet machine)
	cargo run --release --locked --package redis-lock-bench -- all

.PHONY: bench-quick
bench-quick: build ## the same measurements on small samples
	cargo run --release --locked --package redis-lock-bench -- all --quick

.PHONY: install
install: ## copy the module to PREFIX/lib/redis/modules (after make build)
	@test -f '$(module)' || { echo 'The module is not built yet: make build' >&2; exit 1; }
	install -D -m 755 '$(module)' '$(DESTDIR)$(modules)/libredis_lock.so'
	@echo 'Put this line in redis.conf: loadmodule $(modules)/libredis_lock.so'

.PHONY: clean
clean: ## delete everything that was built or downloaded
	cargo clean
