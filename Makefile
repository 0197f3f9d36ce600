# cubiemem - `make help` lists the targets. Everything is built below $(BUILD).

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash

# ------------------------------------------------------------------ knobs
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
PKG_CONFIG ?= pkg-config
CFLAGS ?= -O2 -g
DEVICE ?= sim:64MiB

prefix ?= /usr/local
exec_prefix ?= $(prefix)
bindir ?= $(exec_prefix)/bin
sbindir ?= $(exec_prefix)/sbin
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
datarootdir ?= $(prefix)/share
docdir ?= $(datarootdir)/doc/cubiemem
mandir ?= $(datarootdir)/man
unitdir ?= $(prefix)/lib/systemd/system
sysusersdir ?= $(prefix)/lib/sysusers.d
pkgconfigdir ?= $(libdir)/pkgconfig

VERSION := $(shell sed -n 's/^\#define CUBIEMEM_VERSION_STRING "\(.*\)"/\1/p' include/cubiemem.h)
SONAME := libcubiemem.so.$(firstword $(subst ., ,$(VERSION)))

comma := ,
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-8s %s\n' '$(1)' '$(2)';)

# ------------------------------------------------------------------ tools
PACKAGES := libuv libprotobuf-c jansson libsystemd
pc_cflags := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) cmocka 2>/dev/null)
LIBUV := $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null || echo -luv)
PROTOBUF_C := $(shell $(PKG_CONFIG) --libs libprotobuf-c 2>/dev/null || echo -lprotobuf-c)
JANSSON := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null || echo -ljansson)
SYSTEMD := $(shell $(PKG_CONFIG) --libs libsystemd 2>/dev/null || echo -lsystemd)
CMOCKA := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)

# CUDA: headers for the build, nvcc for the kernels; neither is needed.
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda) $(shell $(PKG_CONFIG) --variable=cudaroot cuda 2>/dev/null))
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_INCLUDE := $(patsubst %/cuda.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/cuda.h)))

# ------------------------------------------------------------------ flags
warnings := -Wall -Wextra -Wshadow -Wformat=2 -Wvla -Wwrite-strings -Wundef \
	-Wstrict-prototypes -Wold-style-definition -Wmissing-prototypes \
	-Wmissing-declarations -Wpointer-arith -Wimplicit-fallthrough \
	-Wno-missing-field-initializers $(if $(WERROR),-Werror)
san_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_tsan := -fsanitize=thread -fno-omit-frame-pointer
san := $(if $(SAN),$(san_$(SAN)))
cov := $(if $(COV),--coverage)

# Objects are position independent and hide their symbols, so that the same ones
# serve programs, archives and the library.
# Quote paths: a header of ours never stands in for a system header of its name.
all_cppflags := -D_GNU_SOURCE -Iinclude -iquote proto -iquote daemon/policy -I$(BUILD)/gen \
	$(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE)) $(pc_cflags) $(CPPFLAGS)
all_cflags := -std=gnu11 -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off -pthread \
	$(warnings) $(san) $(cov) $(CFLAGS)
all_ldflags := -pthread -Wl,-z,defs,-z,relro,-z,now -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' \
	$(san) $(cov) $(LDFLAGS)
ifneq ($(SAN),)
all_ldflags := $(filter-out -Wl$(comma)-z$(comma)defs%,$(all_ldflags))
endif

stage := $(BUILD)/stage
gen := $(BUILD)/gen
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# ---------------------------------------------------------------- sources
proto_src := $(wildcard proto/*.c)
policy_src := $(wildcard daemon/policy/*.c)
sim_src := $(wildcard daemon/sim/*.c)
engine_src := $(wildcard daemon/sim/engine/*.c)
daemon_src := $(filter-out daemon/main.c,$(wildcard daemon/*.c))
client_src := $(wildcard client/*.c)
ctl_src := $(wildcard client/cubiememctl/*.c)
support_src := $(wildcard tests/support/*.c)
unit_src := $(wildcard tests/unit/test_*.c)
integration_src := $(wildcard tests/integration/test_*.c)
gpu_src := $(wildcard tests/gpu/*.c)
bench_src := $(wildcard tests/bench/*.c)
fuzz_src := $(wildcard tests/fuzz/fuzz_*.c)
pb_obj := $(BUILD)/obj/gen/cubiemem.pb-c.o

libproto := $(BUILD)/lib/libproto.a
libpolicy := $(BUILD)/lib/libpolicy.a
libdaemon := $(BUILD)/lib/libdaemon.a
libclient := $(stage)/libcubiemem.a
libsupport := $(BUILD)/lib/libsupport.a
libctl := $(BUILD)/lib/libctl.a
libshared := $(stage)/libcubiemem.so.$(VERSION)
libsim := $(stage)/libcubiemem-sim.so
engine := $(if $(engine_src),$(stage)/cubiemem-sim-engine)

programs := $(stage)/cubiememd $(stage)/cubiememctl
examples := $(stage)/pkfit
unit_tests := $(patsubst tests/%.c,$(BUILD)/tests/%,$(unit_src))
integration_tests := $(patsubst tests/%.c,$(BUILD)/tests/%,$(integration_src))
gpu_tests := $(patsubst tests/gpu/%.c,$(stage)/%,$(gpu_src))
bench_programs := $(patsubst tests/bench/%.c,$(stage)/%,$(bench_src))
fuzz_replays := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(fuzz_src))
all_tests := $(unit_tests) $(integration_tests) $(fuzz_replays)

.PHONY: all
all: $(programs) $(libshared) $(libclient) $(libsim) $(engine) $(examples) $(BUILD)/cubiemem.pc ## daemon, library, tool, simulated driver, examples

# ------------------------------------------------- what objects depend on
# A change of the knobs rebuilds; a plain `make` after it does not.
knobs := $(CC) $(all_cppflags) $(all_cflags) $(all_ldflags) $(prefix) $(libdir) $(includedir)
$(BUILD)/knobs: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(knobs))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(knobs))' > $@
.PHONY: FORCE
FORCE:

$(gen)/cubiemem.pb-c.c $(gen)/cubiemem.pb-c.h &: proto/cubiemem.proto
	$(call say,PROTO,$<)mkdir -p $(gen) && protoc-c --c_out=$(gen) -Iproto $<

$(BUILD)/obj/gen/%.o: $(gen)/%.c $(BUILD)/knobs
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(all_cppflags) $(filter-out -W%,$(all_cflags)) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.c $(BUILD)/knobs | $(gen)/cubiemem.pb-c.h
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(all_cppflags) -iquote $(dir $<) $(all_cflags) -MMD -MP -c -o $@ $<

# --------------------------------------------------------------- archives
archive = $(call say,AR,$@)mkdir -p $(@D) && rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
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

# --------------------------------------------------------------- programs
link = $(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(all_ldflags) -o $@ $(filter %.o %.a,$^)
$(stage)/cubiememd: $(call obj,daemon/main.c) $(libdaemon) $(libpolicy) $(libproto)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
$(stage)/cubiememctl: $(call obj,client/cubiememctl/main.c) $(libctl) $(libpolicy) $(libclient)
	$(link) $(PROTOBUF_C) $(JANSSON) -ldl -lm
$(libshared): $(call obj,$(client_src)) $(call obj,$(proto_src)) $(pb_obj) client/cubiemem.map
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(all_ldflags) -shared -Wl,-soname,$(SONAME) \
		-Wl,--version-script=client/cubiemem.map -o $@ $(filter %.o,$^) $(PROTOBUF_C) -ldl
	$(Q)ln -sf $(notdir $@) $(stage)/$(SONAME) && ln -sf $(SONAME) $(stage)/libcubiemem.so
$(libsim): $(call obj,$(sim_src)) $(libproto)
	$(link) -shared -Wl,-soname,$(notdir $@) -ldl
$(engine): $(call obj,$(engine_src)) $(call obj,$(sim_src)) $(libproto)
	$(link) -ldl

# The example: C on the simulated device, and a CUDA kernel where nvcc is.
pkfit_src := $(wildcard client/examples/pkfit/*.c)
pkfit_cu := $(if $(NVCC),$(wildcard client/examples/pkfit/*.cu))
pkfit_cu_obj := $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(pkfit_cu))
$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/knobs
	$(call say,NVCC,$<)mkdir -p $(@D) && $(NVCC) -O2 -fmad=false -Iinclude -arch=sm_75 -Xcompiler -fPIC -c -o $@ $<
$(call obj,$(pkfit_src)): all_cppflags += $(if $(pkfit_cu),-DPKFIT_CUDA=1,-DPKFIT_CUDA=0)
$(stage)/pkfit: $(call obj,$(pkfit_src)) $(pkfit_cu_obj) $(libshared)
	$(link) -L$(stage) -lcubiemem -lm $(if $(pkfit_cu),-L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt)

# ------------------------------------------------------------------ tests
$(BUILD)/obj/tests/%.o: all_cppflags += -iquote daemon -iquote client -iquote client/cubiememctl -iquote daemon/sim -iquote tests/support
test_libs = $(libsupport) $(libctl) $(libdaemon) $(libclient) $(libpolicy) $(libproto)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(test_libs)
	$(link) $(CMOCKA) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
$(stage)/%: $(BUILD)/obj/tests/gpu/%.o $(test_libs)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
$(stage)/%: $(BUILD)/obj/tests/bench/%.o $(test_libs)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/obj/tests/fuzz/replay.o $(test_libs)
	$(link) $(LIBUV) $(PROTOBUF_C) $(JANSSON) $(SYSTEMD) -ldl -lm

.PHONY: check
check: all $(all_tests) $(gpu_tests) ## all tests on the simulated device; no GPU, no root
	$(Q)BUILD=$(BUILD) RUNNER='$(RUNNER)' SAN='$(SAN)' tests/run $(TESTS)

.PHONY: check-asan check-tsan
check-asan: ## the same under AddressSanitizer and UBSan
	$(Q)$(MAKE) SAN=asan check
check-tsan: ## the same under ThreadSanitizer
	$(Q)$(MAKE) SAN=tsan check

.PHONY: clean
clean: ## remove build/
	$(Q)rm -rf build

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z][a-z -]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28
	@echo "  Knobs: SAN=asan|tsan COV=1 WERROR=1 V=1 CC=clang DEVICE=cuda:0 prefix= DESTDIR= CUDA_HOME="

.PHONY: version
version: ## print the version
	@echo $(VERSION)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
