# A daemon on an engine whose calls fail on order: tests/faults/engine.py between the two. After helpers.bash.

engine_faults_start() {
	need_engine
	sbx_prepare
	python3 "$TOP/tests/faults/engine.py" serve "$SBX_DIR/engine.sock" "$DOCKER_SOCKET" "$SBX_DIR/control" >>"$SBX_DIR/engine.log" 2>&1 </dev/null 3>&- 4>&- &
	ENGINE_PID=$!
	export ENGINE_PID
	until_ok 60 test -S "$SBX_DIR/control" -a -S "$SBX_DIR/engine.sock"
	sbx_daemon --set "worker.docker_socket=$SBX_DIR/engine.sock"
}

engine_faults_stop() {
	sbx_stop
	[ -z "${ENGINE_PID:-}" ] || kill "$ENGINE_PID" 2>/dev/null || true
}

# engine_rounds CALLS WAY…
engine_rounds() {
	run -0 python3 "$TOP/tests/faults/engine.py" rounds "$SBX_DIR/control" "$@"
	echo "$output"
}
