
# One front door.  The work is done by the scripts in util/.
# NGINX_SRC=, NGINX=, BUILD=, CC= as described in util/build;
# JOBS=, PROVE= as described in util/run-tests.

PURE =		ngx_mcp_keepalive_module/mcp
UNIT =		objs/unit
UNIT_CFLAGS =	-g -O1 -W -Wall -Wpointer-arith -Wno-unused-parameter -Werror \
		-fsanitize=address,undefined -fno-sanitize-recover=undefined

PURE_OBJS =	$(patsubst $(PURE)/%.c,$(UNIT)/%.o,$(wildcard $(PURE)/*.c))
UNIT_TESTS =	$(patsubst t/unit/%.c,$(UNIT)/%,$(wildcard t/unit/*_test.c))
UNIT_HEADERS =	$(wildcard $(PURE)/*.h t/unit/*.h t/fuzz/*.h)
REPLAYS =	$(patsubst t/fuzz/%.c,$(UNIT)/%,$(wildcard t/fuzz/fuzz_*.c))

BENCH =		$(patsubst t/bench/%.c,objs/bench/%,$(wildcard t/bench/*_bench.c))
BENCH_CFLAGS =	-O2 -W -Wall -Wpointer-arith -Wno-unused-parameter -Werror

TESTS =

ifeq ($(origin CC),default)
CC =		cc
endif
export CC


help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 20

setup:		## install what building and testing need (apt, npm)
	@util/setup

build:		## objs/ngx_mcp_keepalive_module.so (BUILD=debug|asan)
	@util/build

demo: setup build	## nginx in front of two real MCP servers, live
	@node util/demo/demo.mjs

test: setup build crash-build unit-programs	## every test of the default run (TESTS=t/...)
	@util/run-tests $(TESTS)

unit: unit-programs	## the C unit tests alone, fuzz corpora included
	@prove t/unit.t t/fuzz.t

check:		## style, layers, documentation, static analysis
	@rc=0; for c in style layers docs static; do util/check-$$c || rc=1; done; \
	exit $$rc

asan: unit-programs	## the tests, nginx and module under ASan and UBSan (clang)
	@TESTS="$(TESTS)" util/asan

asan-module: unit-programs	## ... the module alone, in Debian's nginx (quick)
	@BUILD=asan util/build
	@BUILD=asan util/run-tests $(TESTS)

valgrind: build	## keepalives, streams, reloads, revival under memcheck
	@MCP_VALGRIND=1 TEST_TIMEOUT=3600 util/run-tests $(or $(TESTS),\
		t/30_probe.t t/36_reload.t t/60_valgrind.t t/80_stream.t t/85_revive.t)

soak: build crash-build	## faults for half an hour: kills, reloads, shortages
	@MCP_LONG=1 JOBS=1 TEST_TIMEOUT=5400 util/run-tests \
		$(or $(TESTS),t/soak/*.t t/51_torn.t t/78_shortage.t t/79_restarts.t)

sdk: setup build unit-programs	## real servers by real clients (npm), the conformance suite
	@util/setup sdk
	@util/run-tests $(or $(TESTS),t/sdk/*.t)

page: setup build	## the status page in Chromium and Prometheus (apt)
	@util/setup page
	@util/run-tests $(or $(TESTS),t/41_prometheus.t t/43_html.t)

fuzz:		## fuzz the pure code (SECONDS=60 for each target)
	@util/fuzz $(or $(SECONDS),60)

coverage:	## branch coverage of the pure code
	@util/coverage

bench: build $(BENCH) objs/bench/fast	## figures: beside stock nginx, scale
	@for b in $(BENCH); do $$b || exit; done
	@for b in overhead keepalives scale; do t/bench/$$b || exit; done

matrix: unit-programs	## all tests on Debian's three nginx (SMOKE=1: the main ones)
	@util/matrix

deb: build	## the Debian package, in objs/deb (CHROOT=1: tried in a clean one)
	@util/deb

clean:		## remove objs/
	rm -rf objs


# For t/51_torn.t.

crash-build:
	@BUILD=crash util/build

unit-programs: $(UNIT_TESTS) $(REPLAYS) $(UNIT)/judge

$(UNIT)/%.o: $(PURE)/%.c $(UNIT_HEADERS) Makefile
	@mkdir -p $(UNIT)
	@$(CC) $(UNIT_CFLAGS) -I $(PURE) -c -o $@ $<

$(UNIT)/libmcp.a: $(PURE_OBJS)
	@rm -f $@
	@ar rcs $@ $(PURE_OBJS)

$(UNIT)/%_test: t/unit/%_test.c $(UNIT)/libmcp.a $(UNIT_HEADERS)
	@$(CC) $(UNIT_CFLAGS) -I $(PURE) -o $@ $< $(UNIT)/libmcp.a -ljansson

$(UNIT)/judge: t/sdk/judge.c $(UNIT)/libmcp.a $(UNIT_HEADERS)
	@$(CC) $(UNIT_CFLAGS) -I $(PURE) -o $@ $< $(UNIT)/libmcp.a -ljansson

$(UNIT)/fuzz_%: t/fuzz/fuzz_%.c t/fuzz/replay.c $(UNIT)/libmcp.a $(UNIT_HEADERS)
	@$(CC) $(UNIT_CFLAGS) -I $(PURE) -o $@ $< t/fuzz/replay.c \
		$(UNIT)/libmcp.a -ljansson

objs/bench/%: t/bench/%.c $(wildcard $(PURE)/*.[ch]) Makefile
	@mkdir -p objs/bench
	@$(CC) $(BENCH_CFLAGS) -I $(PURE) -o $@ $< $(PURE)/*.c -ljansson


.NOTPARALLEL:

.PHONY: help setup build demo test unit check asan asan-module valgrind soak sdk page fuzz \
	coverage bench matrix deb clean crash-build unit-programs
