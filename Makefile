# Sandbox. `make` builds, `make check` tests, `make install` installs; `make V=1` shows the commands.
# Out-of-tree: `make BUILD=/tmp/b`. Files are found by folder: adding a source needs no edit here.

VERSION  := $(shell cat VERSION)
PREFIX   ?= /usr/local
BINDIR   ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/sandbox
MANDIR   ?= $(PREFIX)/share/man
DOCDIR   ?= $(PREFIX)/share/doc/sandbox
SKILLDIR ?= $(PREFIX)/share/sandbox/skill
SERVERDIR ?= $(PREFIX)/share/sandbox/server
UNITDIR  ?= $(PREFIX)/lib/systemd/system
UNITBINDIR ?= $(BINDIR)
BASHCOMPDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR  ?= $(PREFIX)/share/zsh/site-functions
# fish looks below its own prefix, /etc and the home directory, but not below /usr/local.
FISHCOMPDIR ?= $(if $(filter /usr/local,$(PREFIX)),/etc/fish/completions,$(PREFIX)/share/fish/vendor_completions.d)
BUILD    ?= build
DIST     ?= dist
CC       ?= cc
AR       ?= ar
PKG_CONFIG ?= pkg-config
OPT      ?= -O2 -g
# Set SANITIZE=address,undefined or SANITIZE=thread for an instrumented build.
SANITIZE ?=
WERROR   ?= -Werror

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
endif

WARN := -Wall -Wextra -Wshadow -Wformat=2 -Wmissing-prototypes -Wwrite-strings -Wvla -Wundef -Wpointer-arith $(WERROR)
HARDEN := -fstack-protector-strong -fPIE
ifeq ($(SANITIZE),)
HARDEN += -D_FORTIFY_SOURCE=2
else
# What gcc believes about text lengths changes with the instrumentation; clang does not know the warning.
SANFLAGS := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -Wno-format-truncation -Wno-unknown-warning-option
endif
CPPFLAGS += -I. -D_GNU_SOURCE -DSANDBOX_VERSION='"$(VERSION)"' -include shared/base/banned.h
CFLAGS_ALL := -std=gnu17 $(OPT) $(WARN) $(HARDEN) $(SANFLAGS) -pthread $(CFLAGS)
LDFLAGS_ALL := -pie -Wl,-z,relro,-z,now,--as-needed -pthread $(SANFLAGS) $(LDFLAGS)

pc_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
pc_libs   = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
CLI_PC    := libcjson
DAEMON_PC := libcjson libmicrohttpd libevent_core libevent_pthreads sqlite3 libpq libcurl inih openssl libsodium
CPPFLAGS  += $(call pc_cflags,$(DAEMON_PC))
CLI_LIBS    := $(call pc_libs,$(CLI_PC))
DAEMON_LIBS := $(call pc_libs,$(DAEMON_PC)) -lwslay

# --- sources ---------------------------------------------------------------------------------------------------
BASE_C   := $(wildcard shared/base/*.c)
MODEL_C  := $(wildcard shared/model/*.c)
JSON_C   := $(wildcard shared/json/*.c)
MUX_C    := $(wildcard shared/mux/*.c)
HTTP_C   := $(filter-out shared/http/engine_%,$(wildcard shared/http/*.c))
CONFIG_C := $(wildcard shared/config/*.c)
CRYPTO_C := $(wildcard shared/crypto/*.c)
CLI_C    := $(filter-out cli/main.c cli/mcp/main.c,$(wildcard cli/*.c cli/cmd/*.c cli/mcp/*.c cli/enroll/*.c))
INIT_C   := $(wildcard daemon/init/*.c)
DAEMON_C := $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/api/*.c daemon/controller/*.c daemon/aegis/*.c daemon/store/*.c \
	daemon/link/*.c daemon/worker/*.c daemon/runtime/*.c daemon/events/*.c daemon/egress/*.c daemon/edge/*.c)) $(wildcard shared/http/engine_*.c shared/http/remote/*.c)
# The parts of shared/ that sandbox-init links: libc only.
INIT_SHARED_C := $(BASE_C) $(MUX_C)

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))
lib = $(BUILD)/lib$(1).a
SHARED_LIBS := $(call lib,http) $(call lib,json) $(call lib,mux) $(call lib,config) $(call lib,crypto) $(call lib,model) $(call lib,base)

PROGRAMS := $(BUILD)/sandbox $(BUILD)/sandbox-mcp $(BUILD)/sandboxd $(BUILD)/sandbox-init $(BUILD)/sandbox-remote.so $(BUILD)/sandbox-ssh.so \
	$(BUILD)/sandbox-driver-qemu $(BUILD)/sandbox-boot
# The prompt of `sandbox console` is a program of its own where there is readline, so that nothing else loads it.
CONSOLE_C := $(wildcard cli/console/*.c)
ifneq ($(wildcard /usr/include/readline/readline.h /usr/local/include/readline/readline.h),)
PROGRAMS += $(BUILD)/sandbox-console
endif

all: $(PROGRAMS)

$(call lib,base):   $(call obj,$(BASE_C))
$(call lib,model):  $(call obj,$(MODEL_C))
$(call lib,json):   $(call obj,$(JSON_C))
$(call lib,mux):    $(call obj,$(MUX_C))
$(call lib,http):   $(call obj,$(HTTP_C))
$(call lib,config): $(call obj,$(CONFIG_C))
$(call lib,crypto): $(call obj,$(CRYPTO_C))
$(call lib,daemon): $(call obj,$(DAEMON_C))
$(call lib,cli):    $(call obj,$(CLI_C))
# Of the fuzzers alone; sandbox-init itself is built below.
$(call lib,init):   $(call obj,$(filter-out daemon/init/main.c,$(INIT_C)))

$(BUILD)/lib%.a:
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

# Text that is compiled in (migrations): x.sql becomes a string literal header.
$(BUILD)/sandbox: $(call obj,cli/main.c) $(call lib,cli) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(CLI_LIBS)

$(BUILD)/sandbox-mcp: $(call obj,cli/mcp/main.c) $(call lib,cli) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(CLI_LIBS)

# readline has functions of our names (xrealloc): ours stay inside.
$(BUILD)/sandbox-console: $(call obj,$(CONSOLE_C)) $(call lib,cli) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,--exclude-libs,ALL -o $@ $^ $(CLI_LIBS) -lreadline

$(BUILD)/sandboxd: $(call obj,daemon/main.c) $(call lib,daemon) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(DAEMON_LIBS)

# sandbox-remote.so: what `sandbox` loads to speak https, self-contained, so that the program itself needs neither libcurl nor OpenSSL.
REMOTE_C := $(wildcard shared/http/remote/*.c) shared/http/ws.c shared/http/ws_key.c shared/http/answer.c $(BASE_C)
REMOTE_OBJ := $(patsubst %.c,$(BUILD)/pic/%.o,$(REMOTE_C))
$(BUILD)/pic/%.o: %.c
	$(call say,CC-PIC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fPIE,$(CFLAGS_ALL)) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/sandbox-remote.so: $(REMOTE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -pie,$(LDFLAGS_ALL)) -shared -Wl,-Bsymbolic -o $@ $^ $(call pc_libs,libcurl libcrypto) -lwslay

# sandbox-ssh.so: what `sandbox node add` and its kin load to work on another machine.
SSH_C := $(wildcard cli/ssh/*.c) shared/json/base64.c $(wildcard shared/crypto/*.c) $(BASE_C)
SSH_OBJ := $(patsubst %.c,$(BUILD)/pic/%.o,$(SSH_C))
$(BUILD)/sandbox-ssh.so: $(SSH_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -pie,$(LDFLAGS_ALL)) -shared -Wl,-Bsymbolic -o $@ $^ $(call pc_libs,libssh2)

# sandbox-init: static, with musl where there is one (13-55 KB and tens of KB resident instead of 0.8 MB).
MUSL_CC ?= $(shell command -v musl-gcc)
INIT_CC ?= $(if $(MUSL_CC),$(MUSL_CC) -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch),$(CC))
INIT_CFLAGS := -std=gnu17 -Os -g $(WARN) -fstack-protector-strong -ffunction-sections -fdata-sections -fno-pie
INIT_OBJ := $(patsubst %.c,$(BUILD)/init/%.o,$(INIT_SHARED_C) $(INIT_C))
INIT_CPPFLAGS := -I. -D_GNU_SOURCE -DSANDBOX_VERSION='"$(VERSION)"' -DSANDBOX_INIT=1 -include shared/base/banned.h

$(BUILD)/init/%.o: %.c
	$(call say,CC-INIT,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(INIT_CC) $(INIT_CPPFLAGS) $(INIT_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/sandbox-init: $(INIT_OBJ)
	$(call say,LINK,$@)
	$(Q)$(INIT_CC) -static -no-pie -Wl,--gc-sections,-z,relro,-z,now -o $@ $^

# A sandbox-init whose calls fail when a test says so, and the same for programs that load libraries: tests/faults.
FAULT_POINTS := malloc calloc realloc free read write pread pwrite recv send sendmsg readv splice fsync ftruncate open openat pipe2 \
	socketpair socket fork mkdirat renameat linkat symlinkat fchmod
$(BUILD)/init/tests/faults/points.o: INIT_CPPFLAGS += -DFAULTS_WRAP
$(BUILD)/tools/sandbox-init-faults: $(INIT_OBJ) $(BUILD)/init/tests/faults/points.o
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(INIT_CC) -static -no-pie -Wl,--gc-sections $(FAULT_POINTS:%=-Wl,--wrap=%) -o $@ $^

$(BUILD)/tools/faults.so: tests/faults/points.c tests/faults/fault.h
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -include shared/base/banned.h,$(CPPFLAGS)) -std=gnu17 -O2 -g $(WARN) -fPIC -shared -o $@ $< -ldl

# sandbox-driver-qemu: the microvm tier. sandbox-boot, static like sandbox-init, is the first program of its machines.
QEMU_C := $(filter-out daemon/runtime/drivers/qemu/main.c,$(wildcard daemon/runtime/drivers/qemu/*.c))
BOOT_OBJ := $(patsubst %.c,$(BUILD)/init/%.o,$(BASE_C) $(wildcard daemon/runtime/drivers/qemu/boot/*.c))

$(call lib,qemu): $(call obj,$(QEMU_C))
$(BUILD)/sandbox-driver-qemu: $(call obj,daemon/runtime/drivers/qemu/main.c) $(call lib,qemu) $(call lib,daemon) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(DAEMON_LIBS)

$(BUILD)/sandbox-boot: $(BOOT_OBJ)
	$(call say,LINK,$@)
	$(Q)$(INIT_CC) -static -no-pie -Wl,--gc-sections,-z,relro,-z,now -o $@ $^

# --- tests -----------------------------------------------------------------------------------------------------
# A unit test is tests/unit/test_NAME.c with cmocka. It may link everything but the two main.c; archives give it what it uses.
UNIT_C := $(wildcard tests/unit/test_*.c)
UNIT   := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_C))

$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(call lib,cli) $(call lib,qemu) $(call lib,daemon) $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(call pc_libs,cmocka) $(DAEMON_LIBS)

unit: $(UNIT) $(BUILD)/tools/sandbox-init-faults
	$(Q)tests/lib/run-unit $(UNIT)

units-build: $(UNIT) $(BUILD)/tools/sandbox-init-faults

check: all $(UNIT)
	$(Q)BUILD=$(abspath $(BUILD)) tests/lib/run-all $(abspath $(BUILD))

# What takes longer: tests/full/*.bats, every bats file again with sanitizers, and a minute for each fuzzer.
check-full: all $(UNIT)
	$(Q)FULL=1 FUZZ_SECONDS=60 BATS_FILE_TIMEOUT=1800 BUILD=$(abspath $(BUILD)) tests/lib/run-all $(abspath $(BUILD))

# Real MCP clients and a real development server from npm; needs node and the npm registry, so it is not part of check.
check-clients: all
	$(Q)BATS_FILE_TIMEOUT=1800 BUILD=$(abspath $(BUILD)) TOP=$(CURDIR) tests/lib/run-bats tests/clients/*.bats

# Tools the tests use: tests/tools/NAME.c, one program each.
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tools/%,$(wildcard tests/tools/*.c))
$(BUILD)/tools/%: $(BUILD)/tests/tools/%.o $(SHARED_LIBS)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(CLI_LIBS)
TOOLS += $(BUILD)/tools/sandbox-init-faults $(BUILD)/tools/faults.so
tools: $(TOOLS)
check check-full: tools

# --- fuzz: tests/fuzz/fuzz_NAME.c with libFuzzer (clang) ---------------------------------------------------------
FUZZ := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 10
FUZZ_CC ?= clang
fuzz-smoke:
	$(Q)tests/fuzz/run smoke $(FUZZ_SECONDS) $(FUZZ)
fuzz:
	$(Q)tests/fuzz/run long $(T)

# Every call failing in turn, of sandbox-init, the store and the parsers: docs/testing.md. FULL=1 takes every input and every way.
faults: $(UNIT) tools
	$(Q)tests/lib/run-unit $(BUILD)/tests/test_init_faults $(BUILD)/tests/test_store_faults
	$(Q)SANDBOX_TEST_STORE=postgresql tests/lib/with-postgres tests/lib/run-unit $(BUILD)/tests/test_store_faults
	$(Q)INPUTS=$(if $(FULL),all) tests/faults/allocations $(abspath $(BUILD))

# The daemon, the engine, clients and processes 1 killed at random: `make crashes SECONDS=300 SEED=n`.
SECONDS ?= 300
crashes: all tools
	$(Q)BUILD=$(abspath $(BUILD)) TOP=$(CURDIR) CRASH_SECONDS=$(SECONDS) CRASH_SEED=$(SEED) bats --show-output-of-passing-tests tests/e2e/crashes.bats

# The programs and the units instrumented: all units, then the bats files of check-full or those of ASAN_BATS, TSAN_BATS.
asan tsan: tools
	$(Q)ONLY=$@ FULL=1 BATS_FILE_TIMEOUT=1800 BUILD=$(abspath $(BUILD)) tests/lib/run-all $(abspath $(BUILD))

# Load of every kind for MINUTES, with assertions about what was done and what has grown.
MINUTES ?= 60
soak: all tools
	$(Q)tests/bench/soak $(abspath $(BUILD)) $(MINUTES)

bench: all tools $(BUILD)/tests/test_scale
	$(Q)tests/bench/run $(abspath $(BUILD))
	$(Q)tests/bench/edge $(abspath $(BUILD))
	$(Q)tests/bench/remote $(abspath $(BUILD))
	$(Q)tests/bench/scale $(abspath $(BUILD))

# --- generated files: committed, checked for staleness by make check ----------------------------------------------
generate: $(BUILD)/sandbox $(BUILD)/sandboxd
	$(Q)tests/lib/generate $(abspath $(BUILD)) .

lint:
	$(Q)tests/lib/lint

# What a workstation needs, and what a server needs: archives and packages hold one or the other.
install: install-client install-server

install-client: $(BUILD)/sandbox $(BUILD)/sandbox-mcp $(BUILD)/sandbox-remote.so $(BUILD)/sandbox-ssh.so
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBEXECDIR)" "$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(DOCDIR)" "$(DESTDIR)$(BASHCOMPDIR)" \
		"$(DESTDIR)$(ZSHCOMPDIR)" "$(DESTDIR)$(FISHCOMPDIR)" "$(DESTDIR)$(SKILLDIR)/sandbox-platform/references"
	install -m 0755 $(BUILD)/sandbox $(BUILD)/sandbox-mcp "$(DESTDIR)$(BINDIR)/"
	[ ! -f $(BUILD)/sandbox-console ] || install -m 0755 $(BUILD)/sandbox-console "$(DESTDIR)$(LIBEXECDIR)/"
	install -m 0644 $(BUILD)/sandbox-remote.so "$(DESTDIR)$(LIBEXECDIR)/sandbox-remote-$(VERSION).so"
	install -m 0644 $(BUILD)/sandbox-ssh.so "$(DESTDIR)$(LIBEXECDIR)/sandbox-ssh-$(VERSION).so"
	install -m 0644 man/*.1 "$(DESTDIR)$(MANDIR)/man1/"
	install -m 0644 completions/sandbox.bash "$(DESTDIR)$(BASHCOMPDIR)/sandbox"
	install -m 0644 completions/_sandbox "$(DESTDIR)$(ZSHCOMPDIR)/_sandbox"
	install -m 0644 completions/sandbox.fish "$(DESTDIR)$(FISHCOMPDIR)/sandbox.fish"
	install -m 0644 README.md LICENSE "$(DESTDIR)$(DOCDIR)/"
	install -m 0644 installer/skill/sandbox-platform/SKILL.md "$(DESTDIR)$(SKILLDIR)/sandbox-platform/"
	install -m 0644 installer/skill/sandbox-platform/references/*.md "$(DESTDIR)$(SKILLDIR)/sandbox-platform/references/"

install-server: $(BUILD)/sandboxd $(BUILD)/sandbox-init $(BUILD)/sandbox-driver-qemu $(BUILD)/sandbox-boot
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBEXECDIR)" "$(DESTDIR)$(MANDIR)/man5" "$(DESTDIR)$(MANDIR)/man8" "$(DESTDIR)$(SERVERDIR)"
	install -m 0755 $(BUILD)/sandboxd "$(DESTDIR)$(BINDIR)/"
	install -m 0755 $(BUILD)/sandbox-init "$(DESTDIR)$(LIBEXECDIR)/sandbox-init-$(VERSION)"
	install -m 0755 $(BUILD)/sandbox-driver-qemu $(BUILD)/sandbox-boot "$(DESTDIR)$(LIBEXECDIR)/"
	for f in man/*.5; do [ ! -f "$$f" ] || install -m 0644 "$$f" "$(DESTDIR)$(MANDIR)/man5/"; done
	for f in man/*.8; do [ ! -f "$$f" ] || install -m 0644 "$$f" "$(DESTDIR)$(MANDIR)/man8/"; done
	install -m 0755 installer/base-image installer/microvm-kernel "$(DESTDIR)$(SERVERDIR)/"
	install -m 0644 installer/Caddyfile installer/logrotate installer/*.conf.example LICENSE "$(DESTDIR)$(SERVERDIR)/"
	install -d "$(DESTDIR)$(SERVERDIR)/compose"
	install -m 0644 installer/compose/compose.yaml installer/compose/Caddyfile installer/compose/Dockerfile "$(DESTDIR)$(SERVERDIR)/compose/"
	install -m 0755 installer/compose/worker "$(DESTDIR)$(SERVERDIR)/compose/"
	install -d "$(DESTDIR)$(UNITDIR)"
	for u in installer/systemd/*.service; do sed "s|@BINDIR@|$(UNITBINDIR)|" "$$u" >"$(DESTDIR)$(UNITDIR)/$${u##*/}" && chmod 644 "$(DESTDIR)$(UNITDIR)/$${u##*/}" || exit 1; done

# Archives and packages of VERSION below dist/, for every architecture in ARCHES: see installer/dist.
ARCHES ?= amd64 arm64
dist:
	$(Q)installer/dist --out "$(DIST)" $(ARCHES)

uninstall:
	rm -f "$(DESTDIR)$(LIBEXECDIR)/sandbox-console" "$(DESTDIR)$(LIBEXECDIR)/sandbox-driver-qemu" "$(DESTDIR)$(LIBEXECDIR)/sandbox-boot"
	rm -f "$(DESTDIR)$(BINDIR)/sandbox" "$(DESTDIR)$(BINDIR)/sandbox-mcp" "$(DESTDIR)$(BINDIR)/sandboxd" "$(DESTDIR)$(LIBEXECDIR)/sandbox-init-$(VERSION)" \
		"$(DESTDIR)$(LIBEXECDIR)/sandbox-remote-$(VERSION).so" "$(DESTDIR)$(LIBEXECDIR)/sandbox-ssh-$(VERSION).so"
	rm -f "$(DESTDIR)$(MANDIR)/man1/sandbox.1" "$(DESTDIR)$(MANDIR)/man1/sandbox-"*.1 "$(DESTDIR)$(MANDIR)/man5/sandboxd.conf.5" \
		"$(DESTDIR)$(MANDIR)/man8/sandboxd.8" "$(DESTDIR)$(MANDIR)/man8/sandbox-init.8"
	rm -f "$(DESTDIR)$(BASHCOMPDIR)/sandbox" "$(DESTDIR)$(ZSHCOMPDIR)/_sandbox" "$(DESTDIR)$(FISHCOMPDIR)/sandbox.fish"
	rm -rf "$(DESTDIR)$(DOCDIR)" "$(DESTDIR)$(SKILLDIR)" "$(DESTDIR)$(SERVERDIR)"
	for u in installer/systemd/*.service; do rm -f "$(DESTDIR)$(UNITDIR)/$${u##*/}"; done
	for d in "$(LIBEXECDIR)" "$(PREFIX)/libexec" "$(PREFIX)/share/sandbox" "$(UNITDIR)" "$(PREFIX)/lib/systemd" "$(BASHCOMPDIR)" "$(PREFIX)/share/bash-completion" \
		"$(ZSHCOMPDIR)" "$(PREFIX)/share/zsh" "$(FISHCOMPDIR)" "$(PREFIX)/share/fish" "$(MANDIR)/man1" "$(MANDIR)/man5" "$(MANDIR)/man8" "$(PREFIX)/share/doc" \
		$(if $(filter /usr /usr/local,$(PREFIX)),/etc/fish,"$(MANDIR)" "$(PREFIX)/share" "$(PREFIX)/lib" "$(BINDIR)" "$(PREFIX)"); do \
		[ ! -d "$(DESTDIR)$$d" ] || rmdir "$(DESTDIR)$$d" 2>/dev/null || :; done

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: all check check-full check-clients unit units-build tools fuzz fuzz-smoke faults crashes asan tsan soak bench generate lint install install-client install-server uninstall dist clean
.DELETE_ON_ERROR:
.SECONDARY:
