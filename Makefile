# nginx-kv-router: build, test, install.  "make help" lists the targets.
#
# Everything is built in build/, as any user; the source tree and nginx's stay
# as they are.  Variables to override on the command line:
#
#     NGINX_SRC    nginx's source tree             (that of Debian's nginx-dev)
#     NGINX_FLAGS  its configure arguments, when the tree has no conf_flags
#     CFLAGS       optimisation and debugging                         (-O2 -g)
#     BUILD        where everything is built                           (build)
#     T            make check: run these files only, e.g. T=t/010-events.t
#     V            make check: 1 shows every assertion, make: every command
#     SECONDS      make fuzz: for each target; make soak: altogether (600)
#     TARGET       make fuzz: these only, e.g. TARGET="index json"
#     KEEP         make demo: 1 leaves the demo running, with a load
#     PORT         make demo KEEP=1: where nginx listens, on 127.0.0.1 (8080)
#     COMPARE      make demo: 1 compares five policies on four workloads
#     QUICK        make rivals: 1 compares on two workloads, with one seed;
#                  make matrix: 1 runs 24 cells, with three seeds
#     SMOKE        make engines: 1 runs one model only
#     RECORD       make engines: a folder for captures of what was published
#     PART         make parity: these parts only, e.g. PART="templates";
#                  make soak: this part only, PART=queue or PART=whole;
#                  make engines: too, PART=value
#     DESTDIR, MODULES_DIR, LUA_DIR, ...   make install: see below

NGINX_SRC   = /usr/share/nginx/src
NGINX_FLAGS = --with-compat --with-http_ssl_module --with-threads
CC          = cc
CFLAGS      = -O2 -g
BUILD       = build
PYTHON      = /usr/bin/python3
CLANG       = clang

DESTDIR     =
MODULES_DIR = /usr/lib/nginx/modules
LOAD_DIR    = /usr/share/nginx/modules-available
LUA_DIR     = /usr/share/lua/5.1
BIN_DIR     = /usr/bin
LIB_DIR     = /usr/lib/nginx-kv-router
UNIT_DIR    = /lib/systemd/system
DOC_DIR     = /usr/share/doc/nginx-kv-router
STAND_DIR   = /usr/share/kv-stand-in

MODULE      = ngx_http_kv_router_module
LOAD_FILE   = mod-http-kv-router.conf

# As many commands at once as there are processors, unless -j or another make
# says otherwise; of several goals, as in "clean all", one after the other.  A -j
# in the environment's MAKEFLAGS is overridden: make 4.3 does not show it here.

ifeq ($(MAKELEVEL)$(word 2,$(MAKECMDGOALS)),0)
MAKEFLAGS  += -j$(shell nproc 2>/dev/null || echo 1)
endif

out        := $(abspath $(BUILD))
export KVR_BUILD = $(out)
Q           = $(if $(V),,@)


# src/ needs C11 and asks for GNU extensions where it uses them, so that it is
# the same code here and under nginx's flags.  No -march: one binary runs on
# every machine of an architecture; what is faster is chosen at run time.

WARNINGS    = -Wall -Wextra -Werror -Wno-unused-parameter
KVR_CFLAGS  = -std=gnu11 -fPIC -pthread $(WARNINGS) -Isrc $(CFLAGS)
KVR_LIBS    = -lmpack -lpcre2-8 -lutf8proc -lcrypto -lm -pthread
TEST_LIBS   = -lyajl
RELAY_LIBS  = -lzmq -lhiredis -lssl -lcrypto -lcurl -lmicrohttpd

# Linked into the relay where there is a usable archive of them, so that it
# needs little where it runs: name=archive.  Those of libzmq, libcurl and
# libmicrohttpd would need more libraries than they spare.
STATIC      = hiredis=libhiredis.a mpack=libmpack.a

# After CFLAGS, whose -O2 -g takes twice as long to compile with sanitizers;
# -O1 leaves them at least as much to look at, -g1 has the lines.  With them
# gcc may err about what is initialized: without them it has its say.

CHECKED     = -O1 -g1 -fno-omit-frame-pointer -Wno-error=maybe-uninitialized
SANITIZE    = $(CHECKED) -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN        = $(CHECKED) -fsanitize=thread

srcs       := $(sort $(wildcard src/*/*.c))
tests      := $(sort $(wildcard t/unit/test_*.c))
checks     := $(sort $(wildcard t/check/*.c))
targets    := $(patsubst fuzz/fuzz_%.c,%,$(sort $(wildcard fuzz/fuzz_*.c)))
files      := $(sort $(srcs) $(wildcard src/*.h src/*/*.h ngx_module/*/*.[ch]))
relay_srcs := $(sort $(wildcard relay/*.c))

objs       := $(srcs:%.c=$(BUILD)/obj/%.o)
objs_asan  := $(srcs:%.c=$(BUILD)/obj-asan/%.o)
objs_tsan  := $(patsubst %.c,$(BUILD)/obj-tsan/%.o,$(srcs) $(checks))
relay_objs := $(relay_srcs:%.c=$(BUILD)/obj/%.o)
relay_asan := $(relay_srcs:%.c=$(BUILD)/obj-asan/%.o)
unit       := $(tests:t/unit/%.c=$(BUILD)/unit/%)
unit_asan  := $(tests:t/unit/%.c=$(BUILD)/unit-asan/%) \
              $(targets:%=$(BUILD)/unit-asan/test_fuzz_%)

.DELETE_ON_ERROR:
.PHONY: all module lib relay unit check lint demo rivals matrix fair rolling repeat estimated bench install uninstall deb check-arm64 check-deb check-deploy check-readme check-release check-upgrade release clean help
.PHONY: check-page fuzz tsan screenshots soak engines clients parity FORCE
.PHONY: deps-arm64 deps-build deps-check deps-deb deps-demo deps-deploy deps-engines deps-fuzz deps-metrics deps-packages deps-page deps-release deps-seeds


## make             the module, build/ngx_http_kv_router_module.so, libkvr and
##                  the relay

all: module lib relay

help:
	@sed -n 's/^## //p' Makefile


# What Debian packages a target needs: checked each time, in milliseconds.

deps-arm64 deps-build deps-check deps-deb deps-demo deps-deploy deps-engines deps-fuzz deps-metrics deps-packages deps-page deps-release deps-seeds: deps-%:
	@util/deps $*


# A stamp changes when its text does; what depends on it is then made again.

define stamp
@mkdir -p $(@D)
@printf '%s\n' $(1) | cmp -s - $@ || printf '%s\n' $(1) > $@
endef


## make module      only the module

# nginx's configure runs when config, the list of files or the flags changed;
# the Makefile that it generates knows what to compile again.  conf_flags is
# Debian's: the arguments its nginx was configured with, as a bash array.

module: $(BUILD)/$(MODULE).so

$(BUILD)/nginx/stamp: FORCE | deps-build
	$(call stamp,'$(NGINX_SRC)' '$(NGINX_FLAGS)' '$(CC) $(CFLAGS)' $(files))

$(BUILD)/nginx/Makefile: config $(BUILD)/nginx/stamp
	@echo "configure: $(MODULE) in $(NGINX_SRC)"
	$(Q)cd $(NGINX_SRC) && bash -ec ' \
	    if [ -e conf_flags ]; then . ./conf_flags; \
	    else NGX_CONF_FLAGS=( $(NGINX_FLAGS) ); fi; \
	    $$([ -x configure ] && echo ./configure || echo auto/configure) \
	        --with-cc="$(CC)" \
	        --with-cc-opt="$(CFLAGS) -fPIC $(WARNINGS)" \
	        --with-ld-opt=-fPIC \
	        "$${NGX_CONF_FLAGS[@]}" \
	        --builddir="$(out)/nginx" \
	        --add-dynamic-module="$(CURDIR)"' \
	    > $(out)/nginx/configure.log 2>&1 \
	    || { tail -n 20 $(out)/nginx/configure.log; rm -f $(out)/nginx/Makefile; exit 1; }
	$(Q)touch $@

# Made by config, too: here it follows the page.

page       := $(BUILD)/nginx/ngx_http_kv_router_status_html.c

$(page): ngx_module/status/status.html util/embed $(BUILD)/nginx/Makefile
	$(Q)sh util/embed ngx_http_kv_router_status_html $< > $@

$(BUILD)/$(MODULE).so: $(BUILD)/nginx/Makefile $(page) FORCE
	$(Q)$(MAKE) --no-print-directory -f $(out)/nginx/Makefile \
	    -C $(NGINX_SRC) modules > $(out)/nginx/make.log 2>&1 \
	    || { grep -v '^[[:space:]]*-[ID]' $(out)/nginx/make.log; exit 1; }
	@cmp -s $(BUILD)/nginx/$(MODULE).so $@ \
	    || { cp -f $(BUILD)/nginx/$(MODULE).so $@.new && mv $@.new $@ \
	         && echo "built: $@"; }


## make module-asan the same with sanitizers, for the tests: build/asan

# Beside it is what nginx has to preload.  What the module takes from pools is
# fenced, see fence.c.  nginx copies strings of no bytes from NULL.

FENCED      = $(SANITIZE) -fno-sanitize=nonnull-attribute \
              $(foreach f,palloc pnalloc pcalloc,-Dngx_$f=fenced_$f)

.PHONY: module-asan

module-asan: $(BUILD)/asan/fence.so
	@ASAN_OPTIONS=detect_leaks=0 $(MAKE) --no-print-directory module \
	    BUILD='$(BUILD)/asan' CFLAGS='$(CFLAGS) $(FENCED)'

$(BUILD)/asan/fence.so: t/system/fence.c $(BUILD)/flags-asan | deps-build
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(KVR_CFLAGS) $(SANITIZE) -shared -o $@ $<
	$(Q)for name in asan ubsan; do $(CC) -print-file-name=lib$$name.so; done \
	    > $(@D)/preload


## make lib         build/libkvr.so and build/libkvr.a: src/ without nginx

lib: $(BUILD)/libkvr.so $(BUILD)/libkvr.a $(BUILD)/libkvr_simulate.so

$(BUILD)/flags $(BUILD)/flags-asan $(BUILD)/flags-tsan: $(BUILD)/flags%: FORCE
	$(call stamp,'$(CC) $(KVR_CFLAGS) $(if $*,$(SANITIZE) $(TSAN))')

$(BUILD)/sources: FORCE
	$(call stamp,$(srcs))

define compile
@mkdir -p $(@D)
@echo "  CC      $@"
$(Q)$(CC) $(KVR_CFLAGS) $(1) -MMD -MP -c -o $@ $<
endef

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | deps-build
	$(call compile)

$(BUILD)/obj-asan/%.o: %.c $(BUILD)/flags-asan | deps-build
	$(call compile,$(SANITIZE))

$(BUILD)/obj-tsan/%.o: %.c $(BUILD)/flags-tsan | deps-build
	$(call compile,$(TSAN))

$(BUILD)/libkvr.so: $(objs) $(BUILD)/sources
	@echo "  LD      $@"
	$(Q)$(CC) -shared -Wl,-z,defs -o $@ $(objs) $(KVR_LIBS)

# what kv-simulate has of src/

simulated  := $(sort $(wildcard simulate/*.c))

$(BUILD)/libkvr_simulate.so: $(simulated:%.c=$(BUILD)/obj/%.o) $(BUILD)/libkvr.a
	@echo "  LD      $@"
	$(Q)$(CC) -shared -Wl,-z,defs -o $@ $^ $(KVR_LIBS)

$(BUILD)/libkvr.a: $(objs) $(BUILD)/sources
	@echo "  AR      $@"
	$(Q)rm -f $@ && ar rcs $@ $(objs)

$(BUILD)/libkvr-asan.a: $(objs_asan) $(BUILD)/sources
	@echo "  AR      $@"
	$(Q)rm -f $@ && ar rcs $@ $(objs_asan)


## make relay       build/kv-relay, the process beside each engine

# The same with sanitizers, for the tests: build/kv-relay-asan.

relay: $(BUILD)/kv-relay

$(BUILD)/relay-sources: FORCE
	$(call stamp,$(relay_srcs))

# What each -l of it becomes, as sed has it: tried as a whole, for a system may
# lack it, or have one that no position-independent program can take (libmpack
# of Debian 12).

$(BUILD)/relay-static: $(BUILD)/flags Makefile | deps-build
	@for pair in $(STATIC); do \
	    echo 'int main(void) { return 0; }' \
	    | $(CC) $(CFLAGS) -x c -o $@.out - -Wl,--whole-archive \
	      -l:$${pair#*=} -Wl,--no-whole-archive 2> /dev/null \
	    && echo "s/-l$${pair%=*}\\>/-l:$${pair#*=}/;"; \
	done > $@.new || true
	@rm -f $@.out && mv $@.new $@

$(BUILD)/kv-relay: $(relay_objs) $(BUILD)/libkvr.a $(BUILD)/relay-sources \
                 $(BUILD)/relay-static
	@echo "  LD      $@"
	$(Q)$(CC) -o $@ $(filter %.o %.a,$^) -Wl,--as-needed \
	    $$(echo "$(RELAY_LIBS) $(KVR_LIBS)" | sed -f $(BUILD)/relay-static)

$(BUILD)/kv-relay-asan: $(relay_asan) $(BUILD)/libkvr-asan.a \
                 $(BUILD)/relay-sources
	@echo "  LD      $@"
	$(Q)$(CC) $(SANITIZE) -o $@ $(filter %.o %.a,$^) $(RELAY_LIBS) $(KVR_LIBS)


## make unit        the unit tests t/unit/test_*.c, plain and with sanitizers

# Every t/unit/test_NAME.c is a program that speaks TAP.  The files of t/check,
# which look at the invariants of the index, are linked into each.

unit: $(unit) $(unit_asan)

define link
@mkdir -p $(@D)
@echo "  LD      $@"
$(Q)$(CC) $(1) -o $@ $(filter %.o %.a,$^) $(2) $(KVR_LIBS) $(TEST_LIBS)
endef

$(BUILD)/unit/%: $(BUILD)/obj/t/unit/%.o \
                 $(checks:%.c=$(BUILD)/obj/%.o) $(BUILD)/libkvr.a
	$(call link)

$(BUILD)/unit-asan/%: $(BUILD)/obj-asan/t/unit/%.o \
                 $(checks:%.c=$(BUILD)/obj-asan/%.o) $(BUILD)/libkvr-asan.a
	$(call link,$(SANITIZE))

# What the relay has of its own.

$(BUILD)/unit/test_relay_step: $(BUILD)/obj/relay/kvr_relay_step.o
$(BUILD)/unit-asan/test_relay_step: $(BUILD)/obj-asan/relay/kvr_relay_step.o

# A fuzz target with a driver of our own, see below: it needs no clang.

$(BUILD)/unit-asan/test_fuzz_%: $(BUILD)/obj-asan/fuzz/fuzz_%.o \
                 $(BUILD)/obj-asan/fuzz/driver.o \
                 $(checks:%.c=$(BUILD)/obj-asan/%.o) $(BUILD)/libkvr-asan.a
	$(call link,$(SANITIZE))

# Those of parts of the relay: all of it but its loop and its connections, see
# fuzz/wires.h.

fuzz_relay := $(patsubst %,relay/kvr_relay_%.c,main loop http redis greet wire \
                tls drain_call)
fuzz_relay := $(filter-out $(fuzz_relay),$(relay_srcs)) \
              $(sort $(wildcard fuzz/wires*.c))
FUZZ_RELAY  = -Wl,--wrap=kvr_relay_log -lhiredis -lmicrohttpd

$(BUILD)/unit-asan/test_fuzz_relay: $(BUILD)/obj-asan/fuzz/fuzz_relay.o \
                 $(BUILD)/obj-asan/fuzz/driver.o \
                 $(fuzz_relay:%.c=$(BUILD)/obj-asan/%.o) \
                 $(BUILD)/libkvr-asan.a
	$(call link,$(SANITIZE),$(FUZZ_RELAY))

# A unit test of it, by the same wires.

$(BUILD)/unit/test_relay_replay: $(fuzz_relay:%.c=$(BUILD)/obj/%.o) \
                 $(BUILD)/obj/t/unit/test_relay_replay.o $(BUILD)/libkvr.a
	$(call link,,$(FUZZ_RELAY))

$(BUILD)/unit-asan/test_relay_replay: \
                 $(fuzz_relay:%.c=$(BUILD)/obj-asan/%.o) \
                 $(BUILD)/obj-asan/t/unit/test_relay_replay.o \
                 $(BUILD)/libkvr-asan.a
	$(call link,$(SANITIZE),$(FUZZ_RELAY))

# Threads that write and look up, with ThreadSanitizer: see kvr_words.h.

threaded   := $(BUILD)/unit-tsan/test_admit \
              $(BUILD)/unit-tsan/test_flights \
              $(BUILD)/unit-tsan/test_threads \
              $(BUILD)/unit-tsan/test_turns_threads

$(BUILD)/unit-tsan/%: $(BUILD)/obj-tsan/t/unit/%.o $(objs_tsan)
	$(call link,$(TSAN))

.SECONDARY:

# A clock that tests set, and names that are slow, preloaded: see there.

preloaded  := $(BUILD)/clock.so $(BUILD)/names.so

$(preloaded): $(BUILD)/%.so: t/system/%.c $(BUILD)/flags | deps-build
	@echo "  LD      $@"
	$(Q)$(CC) $(KVR_CFLAGS) -fPIC -shared -o $@ $< -ldl

-include $(shell find $(BUILD)/obj $(BUILD)/obj-asan $(BUILD)/obj-tsan \
                      $(BUILD)/obj-fuzz -name '*.d' 2>/dev/null)


## make tsan        threads that write and look up, with ThreadSanitizer

tsan: $(threaded)
	for test in $(threaded); do $$test 30000 || exit 1; done


## make check       all tests; T="FILE..." runs only these, V=1 shows more

check: deps-check all unit $(threaded) $(BUILD)/fuzz/seeds \
       $(BUILD)/kv-relay-asan module-asan $(preloaded)
	@t/run $(if $(V),-v) --build $(BUILD) $(T)


## make fuzz        fuzzing; SECONDS=600 each, TARGET="index event json", ...

# libFuzzer goes on from what it found before, in build/fuzz/corpus; an input
# that fails is left in build/fuzz.
#
# -max_len: three batches of 64 blocks of 16 tokens, as engines send them, have
# 16 KiB; no seed is cut.  Targets that are fed a text or a message, whatever it
# is, take more: time that grows with the square of a string's length shows
# from 100 kB on.  -timeout: no input has taken a second, so that 5 are no bad
# luck, on whatever machine, but time that grows faster than the input.

SECONDS     = 600
TARGET      = $(targets)
FUZZ        = -fsanitize=address,undefined -fno-sanitize-recover=all \
              -fno-omit-frame-pointer
FUZZ_FLAGS  = -timeout=5 -print_final_stats=1 -verbosity=1
FUZZ_LONG   = engine event ingest json tape tokenizer

objs_fuzz  := $(patsubst %.c,$(BUILD)/obj-fuzz/%.o,$(srcs) $(checks))

fuzz: deps-fuzz $(TARGET:%=$(BUILD)/fuzz/fuzz_%) $(BUILD)/fuzz/seeds
	@for name in $(TARGET); do \
	    echo "fuzz: $$name, $(SECONDS) seconds"; \
	    mkdir -p $(BUILD)/fuzz/corpus/$$name || exit; \
	    max=16384; \
	    case " $(FUZZ_LONG) " in *" $$name "*) max=262144; esac; \
	    $(BUILD)/fuzz/fuzz_$$name -max_total_time=$(SECONDS) -max_len=$$max \
	        $(FUZZ_FLAGS) \
	        -artifact_prefix=$(BUILD)/fuzz/$$name- \
	        $(BUILD)/fuzz/corpus/$$name $(BUILD)/fuzz/seeds/$$name \
	        2> $(BUILD)/fuzz/$$name.log \
	        || { tail -n 60 $(BUILD)/fuzz/$$name.log; exit 1; }; \
	    grep -E 'DONE|exec|new_units' $(BUILD)/fuzz/$$name.log | tail -n 4; \
	done

$(BUILD)/fuzz/seeds: fuzz/seeds.py t/vectors/kv_events.json | deps-seeds
	@echo "  SEEDS   $@"
	$(Q)rm -rf $@ && $(PYTHON) -B fuzz/seeds.py $@

$(BUILD)/flags-fuzz: FORCE
	$(call stamp,'$(CLANG) $(KVR_CFLAGS) $(FUZZ)')

$(BUILD)/obj-fuzz/%.o: %.c $(BUILD)/flags-fuzz | deps-fuzz
	@mkdir -p $(@D)
	@echo "  CLANG   $@"
	$(Q)$(CLANG) $(KVR_CFLAGS) -fsanitize=fuzzer-no-link $(FUZZ) -MMD -MP \
	    -c -o $@ $<

$(BUILD)/fuzz/fuzz_%: $(BUILD)/obj-fuzz/fuzz/fuzz_%.o $(objs_fuzz)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CLANG) -fsanitize=fuzzer $(FUZZ) -o $@ $^ \
	    $(if $(filter relay,$*),$(FUZZ_RELAY)) $(KVR_LIBS) $(TEST_LIBS)

$(BUILD)/fuzz/fuzz_relay: $(fuzz_relay:%.c=$(BUILD)/obj-fuzz/%.o)


## make soak        the long forms of the tests: SECONDS=600 altogether;
##                  PART=queue: only who waits in a zone's queue;
##                  PART=whole: a fleet with everything on, up to 10^7 requests

# A tenth of the time for each fuzz target.

soak: deps-check all unit $(if $(PART),,deps-fuzz $(threaded) module-asan \
      $(preloaded) $(targets:%=$(BUILD)/fuzz/fuzz_%))
	@t/soak $(BUILD) $$(( $(SECONDS) * $(if $(PART),10,7) / 10 )) "" $(PART)
	@$(if $(PART),,$(MAKE) --no-print-directory fuzz SECONDS=$$(( $(SECONDS) / 10 + 1 )))


## make lint        style, luacheck, syntax, direction of includes and calls

lint: deps-check all
	@t/run $(if $(V),-v) --build $(BUILD) util/lint


# For targets whose own output matters: all is built, and one line is said of it,
# unless that fails.

define built
@mkdir -p $(BUILD)
@echo "make all: its output is in $(BUILD)/build.log"
@$(MAKE) --no-print-directory all >$(BUILD)/build.log 2>&1 \
    || { cat $(BUILD)/build.log; exit 1; }
endef


## make demo        a fleet of simulated engines behind nginx; KEEP=1: go on, with
##                  a load and the status page on PORT (8080);
##                  COMPARE=1: five policies, four workloads, 35 minutes

demo: deps-demo
	$(built)
	@$(PYTHON) -B demo/$(if $(COMPARE),compare,demo).py \
	    --module $(BUILD)/$(MODULE).so --relay $(BUILD)/kv-relay \
	    $(if $(KEEP),--keep $(if $(PORT),--port $(PORT)))


## make rivals      ours and other routers, on the same chats in words (two
##                  hours); QUICK=1: two workloads, one seed (ten minutes, and
##                  once some more to install what is compared)

rivals: deps-demo
	$(built)
	@$(PYTHON) -B demo/compare.py --module $(BUILD)/$(MODULE).so \
	    --relay $(BUILD)/kv-relay --rivals $(BUILD)/bench-rivals --jobs 1 \
	    --seeds $(if $(QUICK),1,3) \
	    $(addprefix --policy=,$(if $(QUICK),,round_robin prefix_hash) kv_cost \
	        nginx-least_conn nginx-hash sglang-router vllm-router \
	        dynamo-frontend) \
	    $(addsuffix -text,$(addprefix --workload=,$(if $(QUICK),,trace \
	        chats75) chats40 agents))

## make matrix      policies over 96 simulated fleets and workloads, ten seeds
##                  (an hour); QUICK=1: 24 of them, three seeds; SHAPES=1:
##                  nine workloads that others have published (8 minutes);
##                  SESSIONS=FILE TOKENIZER=DIR: recorded sessions (10 minutes)

matrix: lib
	$(PYTHON) -B bench/matrix.py --results $(BUILD)/matrix \
	    $(if $(QUICK),--quick) $(if $(SHAPES),--shapes) \
	    $(if $(SESSIONS),--sessions $(SESSIONS) --tokenizer $(TOKENIZER))
	$(if $(SHAPES)$(SESSIONS),,$(PYTHON) -B bench/routers.py --results $(BUILD)/routers \
	    --seeds $(if $(QUICK),3,10) matrix)


## make fair        who goes first where one tenant asks for too much: orders of
##                  the queue, in simulation (ten minutes).  LIVE=1: chats
##                  through an nginx of four processes (four minutes);
##                  LIVE=1 ROUTERS=2: through two that share their load

fair: $(if $(LIVE),deps-demo,lib)
	$(if $(LIVE),$(built))
	$(PYTHON) -B $(if $(LIVE),demo/fair.py --module $(BUILD)/$(MODULE).so \
	    --relay $(BUILD)/kv-relay $(if $(ROUTERS),--routers $(ROUTERS)),\
	    bench/fair.py)


## make rolling     engines restarted one after the other, under load: the hit
##                  rate before, during and after (five minutes)

rolling: deps-demo
	$(built)
	@$(PYTHON) -B demo/rolling.py --module $(BUILD)/$(MODULE).so \
	    --relay $(BUILD)/kv-relay


## make repeat      the matrix's three largest wins and losses that one router
##                  and eight engines can show, live; after make matrix.
##                  ROUTERS=4: three cells with four nginx that share their
##                  load or do not, and with one

repeat: deps-demo
	$(built)
	@$(PYTHON) -B $(if $(ROUTERS),demo/routers.py --routers $(ROUTERS),\
	        demo/repeat.py --results $(BUILD)/matrix/report-1-10) \
	    --module $(BUILD)/$(MODULE).so --relay $(BUILD)/kv-relay


## make estimated   routing without events beside exact routing and the others,
##                  on chats in words; LONG=1: two sizes of the caches, the
##                  trace, and three seeds (two hours)
estimated: deps-demo
	$(built)
	@$(PYTHON) -B demo/compare.py --module $(BUILD)/$(MODULE).so \
	    --relay $(BUILD)/kv-relay --rivals $(BUILD)/bench-rivals --jobs 1 \
	    --seeds $(if $(LONG),3,1) \
	    $(addprefix --policy=,round_robin prefix_hash kv_cost estimated \
	        sglang-router vllm-router) \
	    $(addsuffix -text,$(addprefix --workload=,$(if $(LONG),trace chats40 \
	        )chats75))

## make engines     real engines, from the Python registry, held against what
##                  the router tells; SMOKE=1: one model; RECORD=DIR;
##                  PART=value: what routing is worth on them (an hour)

# Beside what the packages of Debian bring, all is in build/engines.

engines: deps-engines all
	$(PYTHON) -B t/engines/run.py \
	    $(if $(SMOKE),--smoke) $(if $(RECORD),--record $(RECORD)) \
	    $(if $(PART),--only "$(PART)")


## make check-metrics  metrics and dashboards, beside a real Prometheus (a
##                  minute)

check-metrics: deps-metrics all
	$(PYTHON) -B t/metrics/check.py --module $(out)/$(MODULE).so \
	    --relay $(out)/kv-relay


## make check-page  the status page, in a headless Chromium (two minutes);
##                  screenshots are left in build/page

check-page: deps-page all
	$(PYTHON) -B t/page/check.py --module $(out)/$(MODULE).so \
	    --relay $(out)/kv-relay --folder $(out)/page


## make screenshots docs/images/status.png: six minutes of the demo's load

screenshots: deps-page all
	mkdir -p docs/images
	$(PYTHON) -B t/page/check.py --module $(out)/$(MODULE).so \
	    --relay $(out)/kv-relay --folder $(out)/page \
	    --readme docs/images/status.png


## make clients     npm's openai and @anthropic-ai/sdk through the router; from
##                  the npm registry, skipped where there is no Node

clients: deps-check all
	$(PYTHON) -B t/clients/run.py


## make parity      texts, ids and requests beside what engines' own code makes
##                  of them; PART="templates": these parts only

# The code they are held against comes from the Python registry, below
# build/parity and build/engines.

parity: deps-check all
	$(PYTHON) -B t/parity/run.py $(PART)


# bench/ has a Makefile of its own

ifneq ($(wildcard bench/Makefile),)

## make bench       benchmarks, see bench/

bench: deps-check all
	$(MAKE) -C bench BUILD=$(out)

endif


## make install     as root: the module, its load file, the relay, Lua,
##                  kv-router-check, kv-simulate, kv-model-check,
##                  kv-model-dump, kv-stand-in, samples

lua_files  := $(shell cd lua 2>/dev/null && find . -name '*.lua' \
                      | sed 's,^\./,,' | sort)
samples    := $(sort $(shell find conf -type f 2>/dev/null))
stand_in   := $(patsubst %,demo/%.py,answers bodies bodies_sglang kv_cache \
                kv_events lateness scheduler serving tokenizer)

# $(DESTDIR) may not exist; the Lua files keep their folders

install: all
	install -d "$(DESTDIR)$(MODULES_DIR)" "$(DESTDIR)$(LOAD_DIR)" \
	    "$(DESTDIR)$(LUA_DIR)" "$(DESTDIR)$(DOC_DIR)/examples"
	install -m 644 $(BUILD)/$(MODULE).so "$(DESTDIR)$(MODULES_DIR)/"
	echo "load_module modules/$(MODULE).so;" \
	    > "$(DESTDIR)$(LOAD_DIR)/$(LOAD_FILE)"
	for f in $(lua_files); do \
	    install -D -m 644 "lua/$$f" "$(DESTDIR)$(LUA_DIR)/$$f" || exit; \
	done
	for f in $(samples:conf/%=%); do \
	    install -D -m 644 "conf/$$f" \
	        "$(DESTDIR)$(DOC_DIR)/examples/$$f" || exit; \
	done
	install -D -m 755 $(BUILD)/kv-relay "$(DESTDIR)$(BIN_DIR)/kv-relay"
	sed "s|^lua_dir=.*|lua_dir='$(LUA_DIR)'|" util/kv-router-check \
	    > "$(DESTDIR)$(BIN_DIR)/kv-router-check"
	chmod 755 "$(DESTDIR)$(BIN_DIR)/kv-router-check"
	sed -e "s|^lua_dir=.*|lua_dir='$(LUA_DIR)'|" \
	    -e "s|^library=.*|library='$(LIB_DIR)/libkvr.so'|" \
	    util/kv-model-check > "$(DESTDIR)$(BIN_DIR)/kv-model-check"
	chmod 755 "$(DESTDIR)$(BIN_DIR)/kv-model-check"
	install -D -m 644 $(BUILD)/libkvr.so "$(DESTDIR)$(LIB_DIR)/libkvr.so"
	install -m 755 util/kv-model-dump "$(DESTDIR)$(BIN_DIR)/kv-model-dump"
	install -D -m 644 $(BUILD)/libkvr_simulate.so \
	    "$(DESTDIR)$(LIB_DIR)/libkvr_simulate.so"
	sed -e "s|^lua_dir=.*|lua_dir='$(LUA_DIR)'|" \
	    -e "s|^library=.*|library='$(LIB_DIR)/libkvr_simulate.so'|" \
	    util/kv-simulate > "$(DESTDIR)$(BIN_DIR)/kv-simulate"
	chmod 755 "$(DESTDIR)$(BIN_DIR)/kv-simulate"
	install -D -m 644 -t "$(DESTDIR)$(STAND_DIR)" $(stand_in)
	install -m 755 demo/engine.py "$(DESTDIR)$(STAND_DIR)/"
	sed "s|^LIBRARY = .*|LIBRARY = '$(LIB_DIR)/libkvr.so'|" \
	    demo/template.py > "$(DESTDIR)$(STAND_DIR)/template.py"
	ln -sfr "$(DESTDIR)$(STAND_DIR)/engine.py" \
	    "$(DESTDIR)$(BIN_DIR)/kv-stand-in"
	install -D -m 644 relay/kv-relay@.service \
	    "$(DESTDIR)$(UNIT_DIR)/kv-relay@.service"
	install -m 644 relay/kv-relay.env "$(DESTDIR)$(DOC_DIR)/examples/"
	install -D -m 644 relay/README.md \
	    "$(DESTDIR)$(DOC_DIR)/relay/README.md"
	install -m 644 README.md CONTRIBUTING.md CHANGES LICENSE "$(DESTDIR)$(DOC_DIR)/"
	install -D -m 644 -t "$(DESTDIR)$(DOC_DIR)/docs" docs/*.md \
	    docs/openapi.json
	install -D -m 644 -t "$(DESTDIR)$(DOC_DIR)/docs/tasks" docs/tasks/*
	install -D -m 644 -t "$(DESTDIR)$(DOC_DIR)/docs/images" docs/images/*
	install -D -m 644 -t "$(DESTDIR)$(DOC_DIR)/contrib" contrib/*.yml contrib/*.py
	install -D -m 644 -t "$(DESTDIR)$(DOC_DIR)/contrib/grafana" \
	    contrib/grafana/*.json
	@echo
	@echo "Add at the top of nginx.conf (both Lua lines only if absent):"
	@echo
	@echo "    load_module modules/ndk_http_module.so;"
	@echo "    load_module modules/ngx_http_lua_module.so;"
	@echo "    load_module modules/$(MODULE).so;"
	@echo
	@echo "or, on Debian, where the Lua module is enabled already:"
	@echo
	@echo "    ln -s $(LOAD_DIR)/$(LOAD_FILE)" \
	      "/etc/nginx/modules-enabled/60-$(LOAD_FILE)"
	@echo
	@echo "Restart nginx: a reload doesn't load a replaced module."
	@echo "Samples are in $(DOC_DIR)/examples."


## make uninstall   as root: what make install put there

uninstall:
	rm -f "$(DESTDIR)$(MODULES_DIR)/$(MODULE).so" \
	    "$(DESTDIR)$(LOAD_DIR)/$(LOAD_FILE)" \
	    "$(DESTDIR)$(BIN_DIR)/kv-relay" \
	    "$(DESTDIR)$(BIN_DIR)/kv-router-check" \
	    "$(DESTDIR)$(BIN_DIR)/kv-model-check" \
	    "$(DESTDIR)$(BIN_DIR)/kv-model-dump" \
	    "$(DESTDIR)$(BIN_DIR)/kv-stand-in" \
	    "$(DESTDIR)$(LIB_DIR)/libkvr.so" \
	    "$(DESTDIR)$(BIN_DIR)/kv-simulate" \
	    "$(DESTDIR)$(LIB_DIR)/libkvr_simulate.so" \
	    "$(DESTDIR)$(UNIT_DIR)/kv-relay@.service"
	cd "$(DESTDIR)$(LUA_DIR)" && rm -f $(lua_files) \
	    && find resty/kv_router -depth -type d -empty -delete 2>/dev/null \
	    || true
	rm -rf "$(DESTDIR)$(DOC_DIR)" "$(DESTDIR)$(STAND_DIR)"
	rmdir "$(DESTDIR)$(LIB_DIR)" 2>/dev/null || true


## make deb         Debian packages, in build/deb; of what is committed

deb: deps-deb
	rm -rf $(BUILD)/deb/source
	mkdir -p $(BUILD)/deb/source
	git archive HEAD | tar -x -C $(BUILD)/deb/source
	cd $(BUILD)/deb/source && DEB_BUILD_OPTIONS=noautodbgsym \
	    dpkg-buildpackage -us -uc -b
	rm -rf $(BUILD)/deb/source


## make check-deb   the packages in bare Debians: built, installed, used,
##                  upgraded, removed, purged; the images of deploy/; as
##                  root (ten minutes)

check-deb: deps-packages
	$(PYTHON) -B t/packages/check.py --build $(out)
	$(PYTHON) -B t/packages/deploy.py --build $(out)


## make check-upgrade FROM=738f547  from the packages of an earlier commit to
##                  these and back, under load; as root (twenty minutes)

check-upgrade: deps-packages deps-demo
	$(PYTHON) -B t/packages/upgrade.py --build $(out) --from $(FROM)


## make check-deploy  deploy/chart, rendered by helm, against schemas and nginx;
##                  helm is built by a Go that is there (minutes)

check-deploy: deps-deploy all
	$(PYTHON) -B t/packages/chart.py --build $(out)


## make check-arm64  the packages for arm64, cross-built; unit programs and
##                  nginx, run by qemu; as root (hours)

check-arm64: deps-arm64
	$(PYTHON) -B t/packages/arm64.py --build $(out)


## make release VERSION=0.1.0  what a release has, of what is committed, in
##                  build/release; as root (an hour); PART="source bookworm":
##                  these parts only

release: deps-release
	@$(PYTHON) -B t/packages/release.py --build $(out) \
	    $(PART:%=--part %) $(VERSION)


## make check-release VERSION=0.1.0  the same once more, in other folders: are
##                  all files the same?  After make release

check-release: deps-release
	@$(PYTHON) -B t/packages/release.py --build $(out) --again \
	    $(PART:%=--part %) $(VERSION)


## make check-readme  README's two commands, from a clean clone in a bare
##                  Debian 12; as root (twenty minutes)

check-readme: deps-packages
	$(PYTHON) -B t/packages/readme.py --build $(out)


## make clean       removes build/

clean:
	rm -rf $(BUILD) t/servroot*
