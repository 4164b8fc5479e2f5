#!/usr/bin/env bats
# sandbox cp with every call failing in turn, in every way.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	ID=$(sbx_create)
	export ID
	mkdir "$SBX_DIR/copies"
}

teardown_file() {
	sbx_stop
}

ways() {
	run -0 python3 "$TOP/tests/faults/transfer.py" "$BUILD/tools/faults.so" "$ID" "$SBX_DIR/copies" "$@"
	echo "$output"
}

@test "interrupted and short calls are gone on with" {
	ways file:EINTR file:SHORT stream:EINTR stream:SHORT
}

@test "errors of files, names and descriptors" {
	ways file:EIO file:ENOSPC name:EROFS name:ENOSPC open:EMFILE open:ENFILE
}

@test "a connection that goes" {
	ways stream:ECONNRESET stream:EPIPE
}
