# Commands for developers and for CI. `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CONFIG ?= deploy/imagefetch.yaml
PYTHON ?= /usr/bin/python3
# If set to 1, compiler warnings fail the build of this package's targets (see Package.swift).
export WARNINGS_AS_ERRORS

# Packages that the Swift toolchain needs for linking, the libraries of the service, and programs that SwiftPM calls.
BUILD_PACKAGES := binutils ca-certificates g++ git libc6-dev libncurses6 libxml2 pkg-config \
  libavif-dev libbrotli-dev libcurl4-openssl-dev libde265-dev libjpeg-dev libjxl-dev liblcms2-dev \
  libmicrohttpd-dev libpng-dev libpq-dev libseccomp-dev libsqlite3-dev libssl-dev libwebp-dev libyaml-dev zlib1g-dev
# Ubuntu's package chromium only installs from the snap store, so it is not used.
BROWSER_PACKAGES := $(shell grep -qx ID=ubuntu /etc/os-release || echo chromium chromium-driver)
TEST_PACKAGES := bsdutils bzip2 $(BROWSER_PACKAGES) curl debian-archive-keyring esbuild libavif-bin libheif-examples \
  libjpeg-turbo-progs libjxl-tools nginx-light postgresql nodejs default-jre-headless openssl python3 python3-pil \
  python3-png python3-requests python3-venv python3-yaml xz-utils
LINT_PACKAGES := prometheus python3 python3-venv shellcheck systemd
BENCH_PACKAGES := libnginx-mod-http-image-filter libvips-tools nginx-light python3 python3-pil \
  python3-venv wrk

DIST_PACKAGES := binutils curl dpkg-dev gcc patchelf python3
IMAGE_PACKAGES := buildah curl debian-archive-keyring debootstrap git iproute2 python3 util-linux

# The prefix of `make install`, and a folder to install below when making packages.
PREFIX ?= /usr/local
DESTDIR ?=
DIST := .build-dist
# The commit for --version; empty if this is not a git clone.
COMMIT = $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
VERSION := $(shell sed -n 's/.*version = "\(.*\)"/\1/p' Sources/App/Version.swift)

LINT_TOOLS := .build-lint
BENCH_PYTHON := .build-bench
CLIENT_TOOLS := .build-clients
OBJECT_STORE := .build-s3
CHECKERS := .build-checkers
CORPORA := .build-corpora
BENCH_THUMBOR := .build-bench-thumbor

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: export SOURCE_COMMIT = $(COMMIT)
run: build-packages ## install missing packages, build, serve on 127.0.0.1:8080 (CONFIG=…, ARGS=…)
	swift build -c release --product imagefetch
	exec .build/release/imagefetch serve --config $(CONFIG) $(ARGS)

.PHONY: run-cluster
run-cluster: build-packages ## run three instances with PostgreSQL, an S3 server and nginx on 127.0.0.1:8080 (PORT=…)
	@.ci/install curl nginx-light postgresql python3 python3-venv
	@$(MAKE) --no-print-directory $(OBJECT_STORE)/installed
	@[ -x .build/release/imagefetch ] || [ -x .build/debug/imagefetch ] || swift build --product imagefetch
	exec deploy/cluster $(OBJECT_STORE)/bin/weed $(PORT)

.PHONY: install
install: dist-packages ## build for machines without Swift, install (PREFIX=/usr/local, DESTDIR=)
	deploy/dist/build $(DIST)/imagefetch
	deploy/dist/install $(DIST)/imagefetch '$(DESTDIR)' '$(PREFIX)'

# The date of all files in packages and images, so that the same commit and packages give the same bytes.
EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),0)

# The distribution release and processor that packages made on this machine are for.
MADE_FOR = $(shell deploy/dist/platform)-$(shell uname -m)

.PHONY: dist
dist: export SOURCE_DATE_EPOCH = $(EPOCH)
dist: dist-packages ## build for machines without Swift, pack as a .tar.gz and a .deb in .build-dist/
	deploy/dist/build $(DIST)/imagefetch
	rm -rf $(DIST)/tar $(DIST)/deb
	deploy/dist/install $(DIST)/imagefetch $(DIST)/tar/imagefetch-$(VERSION) /
	tar --sort=name --mtime=@$(EPOCH) --owner=0 --group=0 --numeric-owner -C $(DIST)/tar -czf \
	  $(DIST)/imagefetch-$(VERSION)-$(MADE_FOR).tar.gz imagefetch-$(VERSION)
	deploy/dist/install $(DIST)/imagefetch $(DIST)/deb /usr
	deploy/dist/deb $(DIST)/deb $(VERSION) $(DIST)
	@ls -lh $(DIST)/imagefetch[-_]*.*

.PHONY: check-dist
check-dist: dist ## run the files of `make dist` without the Swift toolchain
	deploy/dist/check $(DIST)/tar/imagefetch-$(VERSION)

.PHONY: check-deb
check-deb: dist ## install, start, upgrade, remove and purge the .deb of `make dist` under systemd, in namespaces; as root
	@.ci/install lintian mmdebstrap util-linux
	deploy/dist/check-deb $(DIST)/imagefetch_$(VERSION)+$$(deploy/dist/platform short)_$$(dpkg --print-architecture).deb

PLATFORMS ?= bookworm trixie noble
RELEASE_PACKAGES := buildah debootstrap git lintian mmdebstrap nodejs python3 python3-pip python3-setuptools python3-wheel util-linux

.PHONY: release
release: ## make all files of a release in .build-dist/release-VERSION/; as root, in a clean clone (VERSION=…, PLATFORMS='bookworm trixie noble')
	@[ '$(origin VERSION)' = 'command line' ] || { echo 'Name the version: make release VERSION=$(VERSION)' >&2; exit 1; }
	@.ci/install $(RELEASE_PACKAGES)
	deploy/release $(VERSION) $(PLATFORMS)

.PHONY: release-check
release-check: ## verify that sources, changelog, docs and the files of `make release` agree on the version; build nothing (VERSION=…)
	@.ci/install dpkg git python3
	deploy/release --check $(VERSION) $(DIST)/release-$(VERSION)

.PHONY: dist-packages
dist-packages: build-packages
	@.ci/install $(DIST_PACKAGES)

.PHONY: sbom
sbom: $(LINT_TOOLS)/installed ## write the executable's bill of materials, as CycloneDX, to .build-dist/ (EXECUTABLE=…)
	@mkdir -p $(DIST)
	deploy/sbom $(or $(EXECUTABLE),$(firstword $(wildcard .build/release/imagefetch .build/debug/imagefetch))) \
	  >$(DIST)/imagefetch-$(VERSION)-$(MADE_FOR).cdx.json
	$(LINT_TOOLS)/bin/python .ci/check-sbom <$(DIST)/imagefetch-$(VERSION)-$(MADE_FOR).cdx.json
	@ls -lh $(DIST)/imagefetch-$(VERSION)-$(MADE_FOR).cdx.json

.PHONY: image
image: ## build the container image with buildah, print its size, start it read-only and check its health; as root (EXECUTABLE=… uses a built one)
	@.ci/install $(IMAGE_PACKAGES)
	EXECUTABLE='$(EXECUTABLE)' deploy/dist/image localhost/imagefetch

.PHONY: check-reproducible
check-reproducible: ## build the container image twice from scratch and compare its layers; as root
	@.ci/install $(IMAGE_PACKAGES)
	deploy/dist/image localhost/imagefetch-first --no-cache
	deploy/dist/image localhost/imagefetch-second --no-cache
	@layers() { buildah inspect --type image --format '{{.Docker.RootFS.DiffIDs}}' "localhost/imagefetch-$$1"; }; \
	layers first; layers second; [ "$$(layers first)" = "$$(layers second)" ]

# With more parallel tests on two cores, tests with a deadline fail without a fault in the code.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH ?= 4

.PHONY: test
test: test-tools ## install missing packages, run every test (FILTER=… for some)
	@rm -f .build/tests-swift-testing.xml
	swift test --xunit-output .build/tests.xml $(if $(FILTER),--filter '$(FILTER)')

.PHONY: test-tools
test-tools: build-packages
	@.ci/install $(TEST_PACKAGES)
	@[ -n '$(BROWSER_PACKAGES)' ] || echo "Ubuntu has no package of Chromium. The browser tests are skipped."
	@$(MAKE) --no-print-directory $(CLIENT_TOOLS)/installed $(OBJECT_STORE)/installed $(CHECKERS)/installed
	@PYTHON=$(PYTHON) .ci/corpora $(CORPORA) short

ARM64_PACKAGES := debian-archive-keyring gcc gcc-aarch64-linux-gnu mmdebstrap python3 qemu-user

.PHONY: check-arm64
check-arm64: ## build the C targets for ARM64, run them under qemu-user, compare pixels and the system call filter with x86-64
	@.ci/install $(ARM64_PACKAGES)
	.ci/check-arm64 $(filter %-dev,$(BUILD_PACKAGES))

# The tests use the optimized executable that `make dist` packs.
.PHONY: check-release
check-release: check-dist ## build and pack the release executable, and run every test with it (FILTER=… for some)
	TESTED_EXECUTABLE='$(abspath $(DIST)/imagefetch)' $(MAKE) --no-print-directory test

.PHONY: check-platforms
check-platforms: ## check in root file systems that it builds, runs and passes tests on each platform; as root (PLATFORM=… for one)
	@.ci/install python3
	.ci/check-platforms $(PLATFORM)

# OpenStack Swift, an object store that also checks the body's digest and the region, unlike the one that tests usually use.
LONG_TEST_PACKAGES := swift-proxy swift-account swift-container swift-object

.PHONY: configuration
configuration: build-packages ## write deploy/imagefetch.yaml and the table of docs/configuration.md from the declared keys
	UPDATE_CONFIGURATION=1 swift test --filter ConfigurationSampleTests

.PHONY: test-long
test-long: export LONG_TESTS := 1
test-long: ## run long tests: kills, power cuts, replaced instances, interleavings, histories, another S3 server
	@.ci/install $(LONG_TEST_PACKAGES)
	@$(MAKE) --no-print-directory corpora
	@$(MAKE) --no-print-directory test FILTER='$(or $(FILTER),BatchRunTests|ClusterCrowdTests|ClusterLossTests|CorpusTests|CrashStormTests|DecoderProcessTests|DifferentialTests|HistoriesTests|InterleavingTests|MemoryAttackTests|MixedCrashTests|OtherObjectStoreTests|PlantedBugTests|PowerCutTests|WebhookRunTests)'

HISTORIES = $(PYTHON) Tests/Histories/histories.py --service .build/release/imagefetch --operations $(or $(OPERATIONS),100000) $(ARGS)

.PHONY: histories
histories: build-packages ## record what clients see while faults happen, and check it, with each store (OPERATIONS=100000, ARGS='--seed 5 --faults clock,failover')
	@.ci/install curl postgresql python3 python3-venv util-linux
	@$(MAKE) --no-print-directory $(OBJECT_STORE)/installed
	swift build -c release --product imagefetch
	$(PYTHON) Tests/Histories/selftest.py
	$(HISTORIES) --store sqlite
	$(HISTORIES) --store postgres

.PHONY: corpora
corpora: ## fetch the third-party images that `make test-long` tests the decoders with (130 MB)
	@.ci/install bzip2 debian-archive-keyring python3 python3-venv xz-utils
	@PYTHON=$(PYTHON) .ci/corpora $(CORPORA) long

# Tests generate clients from openapi.yaml with these tools. The lock lets only one of several parallel tests install them.
$(CLIENT_TOOLS)/installed: .ci/clients.txt
	@flock Makefile $(MAKE) --no-print-directory install-client-tools

.PHONY: install-client-tools
install-client-tools:
	@[ $(CLIENT_TOOLS)/installed -nt .ci/clients.txt ] || { \
	  echo "Installing the generators of .ci/clients.txt"; \
	  $(PYTHON) -m venv --clear $(CLIENT_TOOLS); \
	  $(CLIENT_TOOLS)/bin/pip --quiet --disable-pip-version-check install --require-hashes \
	    --requirement .ci/clients.txt; \
	  touch $(CLIENT_TOOLS)/installed; }

# An S3 server, the checkers that tests use, and the tools of `make lint`, all verified by the digests of their wheels.
$(OBJECT_STORE)/installed: .ci/s3.txt
$(CHECKERS)/installed: .ci/checkers.txt
$(LINT_TOOLS)/installed: .ci/requirements.txt
$(OBJECT_STORE)/installed $(CHECKERS)/installed $(LINT_TOOLS)/installed:
	@.ci/install python3 python3-venv
	@echo "Installing the packages of $<"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/pip --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

.PHONY: lint
lint: export WARNINGS_AS_ERRORS := 1
lint: build-packages ## check the format, build with warnings as errors, check every other file
	@.ci/install $(LINT_PACKAGES)
	swift format lint --strict --parallel --recursive Package.swift Sources Tests Fuzz/Swift
	@$(MAKE) --no-print-directory lint-files
	swift build --build-tests

.PHONY: lint-files
lint-files: $(LINT_TOOLS)/installed # everything that is not Swift
	.ci/lint $(LINT_TOOLS)/bin

.PHONY: bench
bench: build-packages ## measure and compare with the bare codec, a Python pool and other programs (ARGS=--only …)
	@.ci/install $(BENCH_PACKAGES)
	@$(MAKE) --no-print-directory $(BENCH_PYTHON)/installed
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/run.py --service .build/release/imagefetch \
	  --python $(BENCH_PYTHON)/bin/python $(ARGS)
ifeq ($(findstring --only,$(ARGS)),)
	swift build -c release --product RenderBenchmark
	$(PYTHON) Benchmarks/variants.py --renderer .build/release/RenderBenchmark
	$(PYTHON) Benchmarks/previews.py
	@$(MAKE) --no-print-directory $(BENCH_THUMBOR)/installed
	$(PYTHON) Benchmarks/thumbnails.py --service .build/release/imagefetch \
	  --python $(BENCH_PYTHON)/bin/python --thumbor $(BENCH_THUMBOR)/bin/thumbor
endif

$(BENCH_THUMBOR)/installed: Benchmarks/thumbor.txt
	@echo "Installing the packages of Benchmarks/thumbor.txt"
	@$(PYTHON) -m venv --clear $(BENCH_THUMBOR)
	@$(BENCH_THUMBOR)/bin/pip --quiet --disable-pip-version-check install --requirement $<
	@touch $@

.PHONY: bench-cluster
bench-cluster: build-packages ## compare PostgreSQL and S3 with SQLite and files, and 1 to 8 instances (ARGS=--only …)
	@.ci/install curl nginx-light postgresql python3 python3-pil python3-venv
	@$(MAKE) --no-print-directory $(OBJECT_STORE)/installed
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/cluster.py --service .build/release/imagefetch --weed $(OBJECT_STORE)/bin/weed $(ARGS)

.PHONY: bench-batches
bench-batches: build-packages ## measure batches of a million lines (ARGS=--lines …)
	@.ci/install gcc libsqlite3-dev python3 python3-pil
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/batches.py --service .build/release/imagefetch $(ARGS)

.PHONY: bench-hostile
bench-hostile: build-packages ## measure how much hostile clients slow down other clients (ARGS='--crowd …')
	@.ci/install python3
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/hostile.py --service .build/release/imagefetch $(ARGS)

.PHONY: bench-crashes
bench-crashes: dist-packages ## measure jobs while other images crash their decoders (ARGS='--hanging 100' …)
	@.ci/install nginx-light python3
	deploy/dist/build $(DIST)/planted PlantedService
	$(PYTHON) Benchmarks/crashes.py $(DIST)/planted $(ARGS)

.PHONY: bench-isolation
bench-isolation: build-packages ## measure the cost of decoder processes (ARGS='--rounds …')
	@.ci/install nginx-light python3 python3-pil
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/isolation.py --service .build/release/imagefetch $(ARGS)

.PHONY: overload
overload: build-packages ## offer ten times as many jobs as the service can finish, for ten minutes (ARGS='--seconds …')
	@.ci/install gcc nginx-light python3 python3-pil
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/overload.py --service .build/release/imagefetch $(ARGS)

.PHONY: soak
soak: build-packages ## run 200,000 jobs with faults and cancellations, and check that memory and files do not grow (ARGS='--rate … --curve FILE')
	@.ci/install nginx-light python3 python3-pil
	swift build -c release --product imagefetch
	$(PYTHON) Benchmarks/soak.py --service .build/release/imagefetch $(ARGS)

.PHONY: bench-check
bench-check: build-packages ## count the instructions of decoding and rendering; fails if they have increased (ARGS=--record)
	@.ci/install valgrind
	swift build -c release --product RenderBenchmark
	$(PYTHON) Benchmarks/instructions.py .build/release/RenderBenchmark $(ARGS)

# Python uses Debian's Pillow, so that both sides use the same libjpeg-turbo.
$(BENCH_PYTHON)/installed: Benchmarks/requirements.txt
	@echo "Installing the packages of Benchmarks/requirements.txt"
	@$(PYTHON) -m venv --clear --system-site-packages $(BENCH_PYTHON)
	@$(BENCH_PYTHON)/bin/pip --quiet --disable-pip-version-check install --requirement $<
	@touch $@

FUZZ_PACKAGES := python3 python3-pil

.PHONY: fuzz
fuzz: build-packages ## fuzz the parsers of untrusted bytes, each target for TIME=60 seconds (TARGETS=… for some)
	@.ci/install $(FUZZ_PACKAGES)
	SWIFT=1 PYTHON=$(PYTHON) Fuzz/run $(or $(TIME),60) $(TARGETS)

.PHONY: fuzz-codecs
fuzz-codecs: build-packages # only the targets that need no Swift
	@.ci/install $(FUZZ_PACKAGES)
	PYTHON=$(PYTHON) Fuzz/run $(or $(TIME),60) $(TARGETS)

# With a sanitizer, each test takes several times the time and memory.
sanitize-address sanitize-thread: export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH := 2

.PHONY: sanitize-address
sanitize-address: export ASAN_OPTIONS := detect_leaks=0
sanitize-address: test-tools ## run every test under AddressSanitizer (FILTER=… for some)
	swift test --sanitize=address --scratch-path .build-asan $(if $(FILTER),--filter '$(FILTER)')

.PHONY: sanitize-thread
sanitize-thread: export TSAN_OPTIONS := suppressions=$(CURDIR)/.ci/tsan.supp
# Decoder processes do not start under ThreadSanitizer.
sanitize-thread: export IMAGEFETCH_DECODE_ISOLATION := none
sanitize-thread: test-tools ## run every test under ThreadSanitizer (FILTER=… for some)
	swift test --sanitize=thread --scratch-path .build-tsan $(if $(FILTER),--filter '$(FILTER)')

.PHONY: clean
clean: ## remove all build results, but no data
	rm -rf .build .build-asan .build-tsan .build-fuzz $(DIST) $(LINT_TOOLS) $(BENCH_PYTHON) $(CLIENT_TOOLS) $(OBJECT_STORE) $(CHECKERS) $(CORPORA)

.PHONY: build-packages
build-packages:
	@.ci/install $(BUILD_PACKAGES)
	@command -v swift >/dev/null || { \
	  echo "Swift 6.2 or newer is needed, but there is none on the PATH." >&2; \
	  echo "Install it from https://www.swift.org/install/linux/ with swiftly or as an archive." >&2; \
	  exit 1; }
