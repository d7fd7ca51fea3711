# The thin front door; everything else is CMake (see docs/development.md).
BUILD ?= build/release
JOBS  ?= $(shell nproc)

.PHONY: all setup build demo serve test e2e nightly format clean

all: build

setup:
	@[ -n "$(TIDEPOOL_SKIP_SETUP)" ] || scripts/setup

build: setup
	@scripts/build release $(JOBS) tidepool tidepool-worker tidepool-conductor

demo: build
	@scripts/demo $(BUILD)/bin

serve: build
	$(BUILD)/bin/tidepool serve --model demo --prefill 2 --decode 1

test:
	@[ -n "$(TIDEPOOL_SKIP_SETUP)" ] || scripts/setup --tests
	@scripts/test $(JOBS)

# All stories on a real Kubernetes, which it brings up on this machine (root).
e2e:
	@[ -n "$(TIDEPOOL_SKIP_SETUP)" ] || scripts/setup --e2e
	@scripts/build release $(JOBS) tidepool tidepool-worker \
	  tidepool-conductor tidepool-controller
	@e2e/run --tier fast --tier core --tier full

# Long loops: seeds, fuzzers, soak.
nightly:
	@[ -n "$(TIDEPOOL_SKIP_SETUP)" ] || scripts/setup --tests
	@scripts/build release $(JOBS)
	ctest --test-dir build/release -L nightly --no-tests=error --output-on-failure

format:
	git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

clean:
	rm -rf build
