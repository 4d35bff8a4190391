# make run    build, start the test origin and toron on loopback, print three commands to try
# make test   everything that has to hold: format, lints, all tests
# make soak   the long forms of the load tests, with figures beside nginx's

.PHONY: run test soak tools

run:
	@bash configs/run.sh

test: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace
	cargo test -p toron-reactor --features planted-bugs --test planted_bugs

# Release, one test at a time: the figures are worth nothing otherwise.
soak: tools
	TORON_SOAK=1 cargo test --release --test load --test transfer --test steady --test isolation --test storm --test volume -- --nocapture --test-threads=1

# Programs that the tests use; installed on Debian when missing.
tools:
	@bash tests/tools.sh
