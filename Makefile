# make run      build, start the test origin and toron on loopback, print three commands to try
# make build    build target/release/toron
# make install  put what was built into DESTDIR/PREFIX (/usr/local), with examples and a systemd unit
# make test     everything that has to hold: format, lints, all tests
# make compare  toron beside nginx, HAProxy and bare relays, all rows (about 40 minutes);
#               ROWS='keep-alive bulk' runs some, ROUNDS=5 SECONDS=4 as wanted
# make bench    instructions per request and per part of it, beside the baseline (half a minute and
#               what it takes to build); BASELINE=update writes the baseline anew,
#               SCENARIOS='request forward' counts these only
# make soak     the long forms of the load tests, with figures beside nginx's

PREFIX ?= /usr/local
DESTDIR ?=
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/toron

# What make install puts there lies as it does here, so that the links of the pages lead somewhere.
DOC = $(DESTDIR)$(PREFIX)/share/doc/toron
PAGES = docs/bench.md docs/configuration.md docs/operations.md docs/rules.md docs/tune.md
EXAMPLES = configs/discovery configs/example configs/firewall configs/logrotate configs/recipes configs/tune

.PHONY: run build install test soak compare bench tools

run:
	@bash configs/run.sh

build:
	cargo build --release

# Does not build, so that root needs no toolchain. /etc/toron is left to the operator.
install:
	@test -x "$(BINARY)" || { echo "$(BINARY) is not there: make build" >&2; exit 1; }
	install -D -m 755 "$(BINARY)" "$(DESTDIR)$(PREFIX)/bin/toron"
	install -d "$(DESTDIR)$(PREFIX)/lib/systemd/system" "$(DOC)/docs" "$(DOC)/configs/systemd"
	sed 's,@BINDIR@,$(PREFIX)/bin,' configs/systemd/toron.service \
		> "$(DESTDIR)$(PREFIX)/lib/systemd/system/toron.service"
	cp "$(DESTDIR)$(PREFIX)/lib/systemd/system/toron.service" "$(DOC)/configs/systemd"
	install -m 644 $(PAGES) "$(DOC)/docs"
	find $(EXAMPLES) -type f ! -name '*.sh' -exec install -D -m 644 {} "$(DOC)/{}" \;
	find $(EXAMPLES) -type f -name '*.sh' -exec install -D -m 755 {} "$(DOC)/{}" \;

test: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace
	cargo test -p toron-reactor --features planted-bugs --test planted_bugs

# Release, one test at a time: the figures are worth nothing otherwise.
soak: tools
	TORON_SOAK=1 cargo test --release --test load --test transfer --test steady --test isolation --test drills --test storm --test volume --test metrics --test reload --test bench_soak --test discovery --test podman -- --nocapture --test-threads=1

ROUNDS ?= 5
SECONDS ?= 4
ROWS ?=

# Needs a machine that does nothing else; writes compare.md, compare.json and compare.svg there.
compare: tools
	cargo build --release -p toron-reactor --example relay
	ulimit -n "$$(ulimit -Hn)" && cargo bench --bench compare -- --rounds $(ROUNDS) --seconds $(SECONDS) \
		--out "$(or $(CARGO_TARGET_DIR),target)/compare" $(ROWS)

BASELINE ?=
SCENARIOS ?=

# Counts under valgrind, so other load does not matter. Fails when something has grown by more than 5%.
bench:
	@bash tests/tools.sh valgrind
	cargo bench --bench instructions -- $(if $(BASELINE),--$(BASELINE)) $(SCENARIOS)

# Programs that the tests use; installed on Debian when missing.
tools:
	@bash tests/tools.sh
