# cubiemem - `make help` lists the targets. Everything is built below $(BUILD).

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash

# ---------------------------------------------------------------- packages
# What is installed decides how the rest is built, so a second make reads it.
after_deps := $(filter-out deps,$(MAKECMDGOALS))
ifneq ($(filter deps,$(MAKECMDGOALS)),)
.PHONY: deps $(after_deps)
deps: ## install the packages that are missing (root), or say which
	@.ci/deps
ifneq ($(after_deps),)
$(firstword $(after_deps)): deps
	+@$(MAKE) --no-print-directory $(after_deps)
$(filter-out $(firstword $(after_deps)),$(after_deps)): $(firstword $(after_deps))
	@:
endif
else

# ------------------------------------------------------------------- knobs
# SAN=asan|tsan, COV=1, WERROR=1, V=1, CC=clang, DEVICE=cuda:0, RUNNER=...
SAN ?=
COV ?=
BUILD ?= build$(if $(SAN),/$(SAN))$(if $(COV),/cov)
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
ifeq ($(origin AR),default)
AR := gcc-ar
endif
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
CFLAGS ?= -O2 -g
DEVICE ?= sim:64MiB
FUZZ_TIME ?= 60

prefix ?= /usr/local
exec_prefix ?= $(prefix)
bindir ?= $(exec_prefix)/bin
sbindir ?= $(exec_prefix)/sbin
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
datarootdir ?= $(prefix)/share
datadir ?= $(datarootdir)
docdir ?= $(datarootdir)/doc/cubiemem
unitdir ?= $(prefix)/lib/systemd/system
sysusersdir ?= $(prefix)/lib/sysusers.d
pkgconfigdir ?= $(libdir)/pkgconfig
INSTALL ?= install

VERSION := $(shell sed -n 's/^\#define CUBIEMEM_VERSION_STRING "\(.*\)"/\1/p' include/cubiemem.h)
SONAME := libcubiemem.so.$(firstword $(subst ., ,$(VERSION)))

comma := ,
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)';)

# ------------------------------------------------------------------- tools
PACKAGES := libuv libprotobuf-c jansson libsystemd
pc_cflags := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) cmocka 2>/dev/null)
LIBUV := $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null || echo -luv)
PROTOBUF_C := $(shell $(PKG_CONFIG) --libs libprotobuf-c 2>/dev/null || echo -lprotobuf-c)
JANSSON := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null || echo -ljansson)
SYSTEMD := $(shell $(PKG_CONFIG) --libs libsystemd 2>/dev/null || echo -lsystemd)
CMOCKA := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)

# CUDA: headers for the build, nvcc for the kernels; neither is needed. CUDA_HOME=
# and NVCC= (empty) build as if there were none.
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda) \
	$(shell $(PKG_CONFIG) --variable=cudaroot cuda 2>/dev/null) \
	$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))))
CUDA_HOME := $(CUDA_HOME)
NVCC := $(NVCC)
CUDA_INCLUDE := $(patsubst %/cuda.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/cuda.h)))
CUDA_LIB := $(firstword $(wildcard $(CUDA_HOME)/lib64) $(wildcard $(CUDA_HOME)/lib))
NVCC_ARCH ?= -arch=sm_75
cudart := $(if $(NVCC),$(if $(CUDA_LIB),-L$(CUDA_LIB)) -lcudart_static -lstdc++ -ldl -lrt)

# ------------------------------------------------------------------- flags
# clang looks for fall-throughs in what uthash's macros expand to.
warnings := -Wall -Wextra -Wshadow -Wformat=2 -Wvla -Wwrite-strings -Wundef \
	-Wstrict-prototypes -Wold-style-definition -Wmissing-prototypes \
	-Wmissing-declarations -Wpointer-arith -Wno-missing-field-initializers \
	$(if $(findstring clang,$(CC)),,-Wimplicit-fallthrough) $(if $(WERROR),-Werror)
san_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_tsan := -fsanitize=thread -fno-omit-frame-pointer
san_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer
san := $(if $(SAN),$(or $(san_$(SAN)),$(error SAN is asan or tsan, not '$(SAN)')))
cov := $(if $(COV),--coverage)
optimised := $(filter -O1 -O2 -O3 -Os,$(CFLAGS))
hardening := -fstack-protector-strong \
	$(if $(SAN),,$(if $(optimised),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))

# Objects are position independent and hide their symbols, so that the same ones
# serve programs, archives and the library. Quote paths: a header of ours never
# stands in for a system header of its name.
all_cppflags := -D_GNU_SOURCE -Iinclude -iquote proto -iquote daemon/policy -I$(BUILD)/gen \
	$(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE)) $(pc_cflags) $(CPPFLAGS)
all_cflags := -std=gnu11 -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off -pthread \
	$(hardening) $(warnings) $(san) $(cov) $(CFLAGS)
# DT_RPATH, not DT_RUNPATH: what the copied libraries of a stage folder need in turn
# is then looked for in that folder, too. A sanitizer's symbols come at run time.
all_ldflags := -pthread -Wl,-z,relro,-z,now $(if $(SAN),,-Wl$(comma)-z$(comma)defs) \
	-Wl,--disable-new-dtags,-rpath,'$$ORIGIN:$$ORIGIN/../lib' $(san) $(cov) $(LDFLAGS)
test_paths := -iquote daemon -iquote client -iquote client/cubiememctl -iquote daemon/sim \
	-iquote tests/support

stage := $(BUILD)/stage
gen := $(BUILD)/gen
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# ----------------------------------------------------------------- sources
proto_src := $(wildcard proto/*.c)
policy_src := $(wildcard daemon/policy/*.c)
sim_src := $(wildcard daemon/sim/*.c)
engine_src := $(wildcard daemon/sim/engine/*.c)
daemon_src := $(filter-out daemon/main.c,$(wildcard daemon/*.c))
client_src := $(wildcard client/*.c)
ctl_src := $(wildcard client/cubiememctl/*.c)
pkfit_src := $(wildcard client/examples/pkfit/*.c)
pkfit_cu := $(if $(NVCC),$(wildcard client/examples/pkfit/*.cu))
pkfit_cu_obj := $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(pkfit_cu))
support_src := $(filter-out tests/support/fail_call.c,$(wildcard tests/support/*.c))
unit_src := $(wildcard tests/unit/test_*.c)
integration_src := $(wildcard tests/integration/test_*.c)
gpu_src := $(wildcard tests/gpu/*.c)
bench_src := $(wildcard tests/bench/*.c)
share_src := $(wildcard tests/bench/share/*.c)
fuzz_src := $(wildcard tests/fuzz/fuzz_*.c)
soak_src := $(wildcard tests/soak/*.c)
product_src := $(proto_src) $(policy_src) $(sim_src) $(engine_src) daemon/main.c $(daemon_src) \
	$(client_src) $(ctl_src) $(pkfit_src)
test_src := $(support_src) tests/support/fail_call.c $(unit_src) $(integration_src) $(gpu_src) \
	$(bench_src) $(share_src) $(soak_src) $(fuzz_src) $(wildcard tests/fuzz/replay.c)
headers := $(wildcard include/*.h proto/*.h daemon/*.h daemon/*/*.h daemon/*/*/*.h client/*.h \
	client/*/*.h client/*/*/*.h)
test_headers := $(wildcard tests/*/*.h tests/*/*/*.h)
pb_obj := $(BUILD)/obj/gen/cubiemem.pb-c.o

libproto := $(BUILD)/lib/libproto.a
libpolicy := $(BUILD)/lib/libpolicy.a
libdaemon := $(BUILD)/lib/libdaemon.a
libclient := $(BUILD)/lib/libclient.a
libsupport := $(BUILD)/lib/libsupport.a
libctl := $(BUILD)/lib/libctl.a
libpkfit := $(BUILD)/lib/libpkfit.a
libstatic := $(stage)/libcubiemem.a
libshared := $(stage)/libcubiemem.so.$(VERSION)
libsim := $(stage)/libcubiemem-sim.so
engine := $(if $(engine_src),$(stage)/cubiemem-sim-engine)

programs := $(stage)/cubiememd $(stage)/cubiememctl
examples := $(stage)/pkfit
products := $(programs) $(libshared) $(libstatic) $(libsim) $(engine) $(examples) \
	$(BUILD)/cubiemem.pc $(BUILD)/cubiememd@.service
unit_tests := $(patsubst tests/%.c,$(BUILD)/tests/%,$(unit_src))
integration_tests := $(patsubst tests/%.c,$(BUILD)/tests/%,$(integration_src))
gpu_tests := $(patsubst tests/gpu/%.c,$(stage)/%,$(gpu_src)) $(stage)/cubiememd-seams \
	$(if $(NVCC),$(stage)/legacy_reader)
bench_programs := $(patsubst tests/bench/%.c,$(stage)/%,$(bench_src)) $(stage)/share
fuzz_replays := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(fuzz_src))
fuzzers := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(fuzz_src))
all_tests := $(unit_tests) $(integration_tests) $(fuzz_replays) $(stage)/cubiememd-faults

.PHONY: all
all: $(products) ## daemon, library, tool, simulated driver, example
ifeq ($(NVCC),)
	@echo '  NOTE     the CUDA kernels are left out: no nvcc (set CUDA_HOME)'
endif

# -------------------------------------------------- what objects depend on
# A change of the knobs rebuilds; a plain `make` after it does not. What only the
# templates hold has a stamp of its own.
knobs := $(CC) $(all_cppflags) $(all_cflags) $(all_ldflags) $(NVCC) $(NVCC_ARCH) $(CUDA_LIB)
places := $(VERSION) $(prefix) $(sbindir) $(libdir) $(includedir) $(docdir)
quoted = '$(subst ','\'',$(1))'
stamp = @mkdir -p $(@D); printf '%s\n' $(quoted) | cmp -s - $@ || printf '%s\n' $(quoted) > $@
$(BUILD)/knobs: FORCE
	$(call stamp,$(knobs))
$(BUILD)/places: FORCE
	$(call stamp,$(places))
.PHONY: FORCE
FORCE:

$(gen)/cubiemem.pb-c.c $(gen)/cubiemem.pb-c.h &: proto/cubiemem.proto
	$(call say,PROTO,$<)mkdir -p $(gen) && protoc-c --c_out=$(gen) -Iproto $<

$(BUILD)/obj/gen/%.o: $(gen)/%.c $(BUILD)/knobs
	$(call say,CC,$<)mkdir -p $(@D) && \
		$(CC) $(all_cppflags) $(filter-out -W%,$(all_cflags)) -MMD -MP -c -o $@ $<

compile = $(CC) $(all_cppflags) -iquote $(dir $<) $(all_cflags)
$(BUILD)/obj/%.o: %.c $(BUILD)/knobs | $(gen)/cubiemem.pb-c.h
	$(call say,CC,$<)mkdir -p $(@D) && $(compile) -MMD -MP -c -o $@ $<
$(BUILD)/obj/tests/%.o: all_cppflags += $(test_paths)
# The simulated driver is loaded late: its threads' variables lie in what every thread has
# from its start, for libc aborts where it cannot allocate them afterwards.
$(call obj,$(sim_src)): all_cflags += -ftls-model=initial-exec
$(call obj,$(pkfit_src)): all_cppflags += -DPKFIT_CUDA=$(if $(pkfit_cu),1,0)

$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/knobs
	$(call say,NVCC,$<)mkdir -p $(@D) && $(NVCC) -O2 -fmad=false -Iinclude $(NVCC_ARCH) \
		-Xcompiler -fPIC -MMD -c -o $@ $<

# --------------------------------------------------- archives and libraries
archive = $(call say,AR,$@)mkdir -p $(@D) && rm -f $@ && $(AR) qcs $@ $(filter %.o,$^)
$(libproto): $(call obj,$(proto_src)) $(pb_obj)
	$(archive)
$(libpolicy): $(call obj,$(policy_src))
	$(archive)
$(libdaemon): $(call obj,$(daemon_src))
	$(archive)
$(libclient): $(call obj,$(client_src)) $(call obj,$(proto_src)) $(pb_obj)
	$(archive)
$(libsupport): $(call obj,$(support_src))
	$(archive)
$(libctl): $(call obj,$(filter-out client/cubiememctl/main.c,$(ctl_src)))
	$(archive)
$(libpkfit): $(call obj,$(filter-out client/examples/pkfit/main.c,$(pkfit_src))) $(pkfit_cu_obj)
	$(archive)

# The installed archive is one object whose hidden symbols are local: it clashes
# with no name of the program that it is linked into.
$(libstatic): $(call obj,$(client_src)) $(call obj,$(proto_src)) $(pb_obj)
	$(call say,AR,$@)mkdir -p $(@D) $(BUILD)/lib && rm -f $@ && \
		$(CC) -nostdlib -r -o $(BUILD)/lib/cubiemem.o $(filter %.o,$^) && \
		$(OBJCOPY) --localize-hidden $(BUILD)/lib/cubiemem.o && \
		$(AR) qcs $@ $(BUILD)/lib/cubiemem.o
$(libshared): $(call obj,$(client_src)) $(call obj,$(proto_src)) $(pb_obj) client/cubiemem.map
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(all_ldflags) -shared -Wl,-soname,$(SONAME) \
		-Wl,--version-script=client/cubiemem.map -o $@ $(filter %.o,$^) $(PROTOBUF_C) -ldl
	$(Q)ln -sf $(notdir $@) $(stage)/$(SONAME) && ln -sf $(SONAME) $(stage)/libcubiemem.so

# ---------------------------------------------------------------- programs
# Objects before archives: one that is named stands in for the archive's.
link = $(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(all_ldflags) -o $@ $(filter %.o,$^) $(filter %.a,$^)
$(stage)/cubiememd: $(call obj,daemon/main.c) $(libdaemon) $(libpolicy) $(libproto)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
$(stage)/cubiememctl: $(call obj,client/cubiememctl/main.c) $(libctl) $(libpolicy) $(libclient)
	$(link) $(PROTOBUF_C) $(JANSSON) -ldl -lm
$(libsim): $(call obj,$(sim_src)) $(libproto)
	$(link) -shared -Wl,-soname,$(notdir $@) -ldl
$(engine): $(call obj,$(engine_src)) $(call obj,$(sim_src)) $(libproto)
	$(link) -ldl
# The example: C on the simulated device, and a CUDA kernel where nvcc is.
$(stage)/pkfit: $(call obj,client/examples/pkfit/main.c) $(libpkfit) $(libshared)
	$(link) -L$(stage) -lcubiemem -lm $(cudart)

template = $(call say,GEN,$@)sed -e 's|@prefix@|$(prefix)|' -e 's|@sbindir@|$(sbindir)|' \
	-e 's|@docdir@|$(docdir)|' \
	-e 's|@libdir@|$(patsubst $(prefix)/%,$${prefix}/%,$(libdir))|' \
	-e 's|@includedir@|$(patsubst $(prefix)/%,$${prefix}/%,$(includedir))|' \
	-e 's|@VERSION@|$(VERSION)|' $< > $@
$(BUILD)/cubiemem.pc: client/cubiemem.pc.in $(BUILD)/places
	$(template)
$(BUILD)/cubiememd@.service: systemd/cubiememd@.service.in $(BUILD)/places
	$(template)

# ------------------------------------------------------------------- tests
test_libs = $(libsupport) $(libpkfit) $(libctl) $(libdaemon) $(libclient) $(libpolicy) $(libproto)
test_link = $(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) $(cudart) -ldl -lm
.PRECIOUS: $(BUILD)/obj/%.o
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(test_libs)
	$(test_link) $(CMOCKA)
$(stage)/%: $(BUILD)/obj/tests/gpu/%.o $(test_libs)
	$(test_link)
$(stage)/%: $(BUILD)/obj/tests/bench/%.o $(test_libs)
	$(test_link)
$(stage)/share: $(call obj,$(share_src)) $(test_libs)
	$(test_link)
$(call obj,$(share_src)): all_cppflags += -iquote client/examples/pkfit \
	-DPKFIT_CUDA=$(if $(pkfit_cu),1,0)
# A daemon that can be told to break a rule, so that a test of the rule can fail.
seam_objects = $(patsubst %,$(BUILD)/obj/seams/%.o,$(1))
$(BUILD)/obj/seams/daemon/%.o: daemon/%.c $(BUILD)/knobs | $(gen)/cubiemem.pb-c.h
	$(call say,CC,$< (seams))mkdir -p $(@D) && $(compile) -DCUBIEMEM_TEST_SEAMS -MMD -MP -c -o $@ $<
$(BUILD)/obj/seams/client/%.o: client/%.c $(BUILD)/knobs | $(gen)/cubiemem.pb-c.h
	$(call say,CC,$< (seams))mkdir -p $(@D) && $(compile) -DCUBIEMEM_TEST_SEAMS -MMD -MP -c -o $@ $<
$(BUILD)/tests/integration/test_handshake: $(call seam_objects,client/marks client/events) \
	| $(stage)/cubiememd-seams
$(stage)/cubiememd-seams: $(call obj,daemon/main.c tests/support/seam.c) \
	$(call seam_objects,daemon/session daemon/user daemon/eviction daemon/transaction) $(libdaemon) $(libpolicy) $(libproto)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
# A daemon whose k-th call of one of these fails.
fail_calls := malloc calloc realloc strdup strndup memfd_create socketpair fcntl
$(stage)/cubiememd-faults: $(call obj,daemon/main.c tests/support/fail_call.c) $(libdaemon) $(libpolicy) $(libproto)
	$(link) $(addprefix -Wl$(comma)--wrap=,$(fail_calls)) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
# A program that knows cudart and not us.
$(stage)/legacy_reader: tests/gpu/legacy_reader.cu $(BUILD)/knobs
	$(call say,NVCC,$<)mkdir -p $(@D) && $(NVCC) -O2 $(NVCC_ARCH) -cudart static -o $@ $<
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/obj/tests/fuzz/replay.o $(test_libs)
	$(test_link)

run_tests = $(Q)BUILD=$(BUILD) RUNNER='$(RUNNER)' SAN='$(SAN)' tests/run
.PHONY: check
check: all $(all_tests) $(gpu_tests) ## all tests on the simulated device; TESTS='name...' chooses
	$(run_tests) $(TESTS)

.PHONY: check-asan check-tsan check-valgrind check-faults check-corpus check-gpu
check-asan: ## the same under AddressSanitizer and UBSan
	$(Q)$(MAKE) SAN=asan check
check-tsan: ## the same under ThreadSanitizer
	$(Q)$(MAKE) SAN=tsan check
check-valgrind: ## the test programs under valgrind
	$(Q)$(MAKE) RUNNER='valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite --suppressions=tests/support/valgrind.supp' check
check-faults: all $(all_tests) ## the tests that fail every k-th driver call, allocation, system call
	$(run_tests) fault
check-corpus: $(fuzz_replays) ## replay the saved fuzzing inputs
	$(run_tests) tests/fuzz/
check-gpu: ## what needs a GPU; compiles nothing (`make stage` does)
	$(Q)tests/gpu/run $(BUILD)

.PHONY: check-headers check-exports check-source check-install
check-headers: $(gen)/cubiemem.pb-c.h ## every header compiles alone; the public one also as C++
	$(Q)CC='$(CC)' tests/support/check_headers.sh '$(CUDA_INCLUDE)' \
		'$(all_cppflags) $(test_paths) $(warnings)' $(headers)
check-exports: $(libshared) $(libstatic) ## the libraries export what cubiemem.h declares, no more
	$(Q)tests/support/check_exports.sh $(libshared) $(libstatic) $(SONAME)
check-source: ## who may include whom; functions that are not used here
	$(Q)tests/support/check_map.sh && tests/support/check_banned.sh
check-install: all ## install into a scratch folder: the unit, the README's program, uninstall
	+$(Q)tests/support/check_install.sh '$(MAKE)' '$(CC)' $(BUILD)

.PHONY: soak
soak: all $(BUILD)/tests/soak/soak ## many clients at random for SOAK_SECONDS (600); books that balance
	$(Q)CUBIEMEM_STAGE=$(stage) $(BUILD)/tests/soak/soak

.PHONY: demo
demo: all ## three programs share one device (DEVICE=sim:64MiB, cuda:0)
	$(Q)BUILD=$(BUILD) tests/demo $(DEVICE)

.PHONY: stage
stage: all $(gpu_tests) $(bench_programs) ## build/stage with the libraries it needs, to be carried elsewhere
	$(Q)tests/support/stage_libraries.sh $(stage)

.PHONY: bench
bench: all $(bench_programs) ## figures, with machine, commit and the raw floor
	$(if $(SAN)$(COV),$(error bench measures the plain build, without SAN and COV))
	$(Q)DEVICE=$(DEVICE) tests/bench/run $(BUILD) $(BENCH)

.PHONY: bench-share
bench-share: all $(stage)/share ## processes that want twice the device: alone, in turn, with us (SHARE= options)
	$(if $(SAN)$(COV),$(error bench-share measures the plain build, without SAN and COV))
	$(Q)DEVICE=$(if $(filter file,$(origin DEVICE)),,$(DEVICE)) tests/bench/share/run $(BUILD) $(SHARE)

# ----------------------------------------------------------------- fuzzing
.PHONY: fuzz fuzzers
fuzz: ## build the fuzzers (clang) and run each FUZZ_TIME seconds
	$(Q)$(MAKE) CC=clang AR=ar SAN=fuzz BUILD=build/fuzz fuzzers
	$(Q)for f in $(patsubst tests/fuzz/%.c,%,$(fuzz_src)); do \
		mkdir -p build/fuzz/corpus/$$f && \
			CUBIEMEM_SIM=$(CURDIR)/build/fuzz/stage/libcubiemem-sim.so build/fuzz/$$f -max_total_time=$(FUZZ_TIME) \
			-artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/corpus/$$f \
			tests/fuzz/corpus/$$f || exit 1; done
fuzzers: $(fuzzers) $(libsim)
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(test_libs)
	$(test_link) -fsanitize=fuzzer

# ---------------------------------------------------------------- analysis
.PHONY: tidy analyze cppcheck format check-format coverage
# Against our own declarations: with cuda.h it speaks of that.
tidy: CUDA_INCLUDE :=
tidy: $(gen)/cubiemem.pb-c.h ## clang-tidy over the product
	$(Q)clang-tidy --quiet $(product_src) -- -DPKFIT_CUDA=0 $(all_cppflags) -iquote daemon \
		-iquote client -iquote daemon/sim -std=gnu11 -pthread
# Two kinds are left to others (sanitizers, cppcheck): gcc 12 takes what passes into a
# caller's struct for lost, and forgets over a call that a pointer was looked at.
analyze: ## gcc's static analysis of proto, policy, library and tool
	$(Q)$(MAKE) CC=gcc BUILD=build/analyze CFLAGS='-O1 -g -fanalyzer -Wno-analyzer-malloc-leak \
		-Wno-analyzer-possible-null-dereference' WERROR=1 analyze-objects
.PHONY: analyze-objects
analyze-objects: $(call obj,$(proto_src) $(policy_src) $(client_src) $(ctl_src))
# cppcheck reads no system header; without this one it would not know a list's loop.
utlist := $(firstword $(wildcard /usr/include/utlist.h /usr/local/include/utlist.h))
cppcheck: $(gen)/cubiemem.pb-c.h ## cppcheck over the product
	$(Q)cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr \
		--suppress=missingIncludeSystem --error-exitcode=1 -D__GNUC__=12 -DPKFIT_CUDA=0 \
		-D_GNU_SOURCE $(addprefix --include=,$(utlist)) \
		-Iinclude -Iproto -Idaemon/policy -Idaemon -Iclient $(product_src)
format: ## clang-format everything
	$(Q)clang-format -i $(product_src) $(test_src) $(headers) $(test_headers)
check-format: ## say which files clang-format would change (for information)
	$(Q)n=0; for f in $(product_src) $(test_src) $(headers) $(test_headers); do \
		clang-format --dry-run -Werror $$f >/dev/null 2>&1 || { echo "  $$f"; n=$$((n + 1)); }; \
		done; echo "$$n files differ from .clang-format"
coverage: ## line coverage of the tests
	$(Q)$(MAKE) COV=1 CFLAGS='-O0 -g' check
	$(Q)tests/support/coverage.sh build/cov

# The commands of the objects, for editors and tools that read this file.
json_flags = $(subst ",\",$(strip $(CC) $(all_cppflags) $(2) -iquote $(dir $(1)) $(all_cflags)))
json_entry = {"directory": "$(CURDIR)", "file": "$(1)", "command": "$(call json_flags,$(1),$(2)) -c $(1)"},
.PHONY: compile_commands.json
compile_commands.json: $(gen)/cubiemem.pb-c.h ## for editors and clang tools
	$(call say,GEN,$@):
	$(file >$@,[)
	$(foreach f,$(filter-out client/examples/%,$(product_src)),$(file >>$@,$(call json_entry,$(f))))
	$(foreach f,$(pkfit_src),$(file >>$@,$(call json_entry,$(f),-DPKFIT_CUDA=$(if $(pkfit_cu),1,0))))
	$(foreach f,$(test_src),$(file >>$@,$(call json_entry,$(f),$(test_paths))))
	$(file >>$@,{"directory": "$(CURDIR)", "file": "include/cubiemem.h", "command": "$(CC) -xc -c include/cubiemem.h"}])

# ------------------------------------------------------------ installation
.PHONY: install uninstall
install: all ## put it below $(DESTDIR)$(prefix); touches nothing else of the system
	$(Q)$(INSTALL) -d $(addprefix $(DESTDIR),$(bindir) $(sbindir) $(libdir) $(includedir) \
		$(pkgconfigdir) $(datadir)/cubiemem $(docdir) $(unitdir) $(sysusersdir))
	$(Q)$(INSTALL) -m 755 $(stage)/cubiememd $(DESTDIR)$(sbindir)/
	$(Q)$(INSTALL) -m 755 $(stage)/cubiememctl $(DESTDIR)$(bindir)/
	$(Q)$(INSTALL) -m 755 $(libshared) $(libsim) $(engine) $(DESTDIR)$(libdir)/
	$(Q)$(INSTALL) -m 644 $(libstatic) $(DESTDIR)$(libdir)/
	$(Q)ln -sf $(notdir $(libshared)) $(DESTDIR)$(libdir)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(DESTDIR)$(libdir)/libcubiemem.so
	$(Q)$(INSTALL) -m 644 include/cubiemem.h $(DESTDIR)$(includedir)/
	$(Q)$(INSTALL) -m 644 $(BUILD)/cubiemem.pc $(DESTDIR)$(pkgconfigdir)/
	$(Q)$(INSTALL) -m 644 proto/cubiemem.proto $(DESTDIR)$(datadir)/cubiemem/
	$(Q)$(INSTALL) -m 644 README.md CHANGELOG.md LICENSE $(DESTDIR)$(docdir)/
	$(Q)$(INSTALL) -m 644 $(BUILD)/cubiememd@.service $(DESTDIR)$(unitdir)/
	$(Q)$(INSTALL) -m 644 systemd/cubiemem.sysusers $(DESTDIR)$(sysusersdir)/cubiemem.conf
uninstall: ## remove what install put there
	$(Q)rm -f $(addprefix $(DESTDIR)$(libdir)/,$(notdir $(libshared) $(libstatic) $(libsim) \
		$(engine)) $(SONAME) libcubiemem.so) \
		$(addprefix $(DESTDIR),$(sbindir)/cubiememd $(bindir)/cubiememctl \
		$(includedir)/cubiemem.h $(pkgconfigdir)/cubiemem.pc $(unitdir)/cubiememd@.service \
		$(sysusersdir)/cubiemem.conf)
	$(Q)rm -rf $(addprefix $(DESTDIR),$(datadir)/cubiemem $(docdir))

.PHONY: dist
dist: ## the committed source as build/cubiemem-VERSION.tar.gz, the same bytes every time
	$(call say,DIST,build/cubiemem-$(VERSION).tar.gz)mkdir -p build && \
		git archive --format=tar --prefix=cubiemem-$(VERSION)/ HEAD | \
		gzip -9n > build/cubiemem-$(VERSION).tar.gz

.PHONY: clean help version
clean: ## remove build/
	$(Q)rm -rf build compile_commands.json
help: ## this list
	@sed -n 's/^\([a-z][a-z_.-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 26
	@echo '  Knobs: SAN=asan|tsan COV=1 WERROR=1 V=1 CC=clang DEVICE=cuda:0 TESTS= RUNNER= BENCH= SHARE= FUZZ_TIME='
	@echo '         CFLAGS= LDFLAGS= CUDA_HOME= NVCC= prefix= DESTDIR= BUILD='
version: ## print the version
	@echo $(VERSION)

# The compiler's lists of headers; find, because folders come and go.
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

endif # deps among the goals
