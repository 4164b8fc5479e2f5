#!/usr/bin/env bats
# A real Vite from npm behind a tunnel: its host check, its modules, hot reloading over its WebSocket. `make check-clients` runs it; it needs
# node and the npm registry, and keeps what it downloads in CLIENTS_DIR (a temporary directory when not set).
load ../lib/helpers.bash
load ../lib/tls.bash

setup_file() {
	command -v npm >/dev/null || skip "no npm"
	need_engine
	CLIENTS_DIR=${CLIENTS_DIR:-$BATS_FILE_TMPDIR/npm}
	export CLIENTS_DIR
	mkdir -p "$CLIENTS_DIR/vite"
	[ -d "$CLIENTS_DIR/vite/node_modules/vite" ] || (cd "$CLIENTS_DIR/vite" && timeout 300 npm install --no-audit --no-fund --silent vite@5 ws)
	EDGE=$(free_port)
	export EDGE
	# A domain that Vite does not know: localhost it would let pass anyway.
	sbx_start --set "edge.listen=127.0.0.1:$EDGE" --set edge.domain=boxes.example --set edge.scheme=http
	sbx_create --name dev >/dev/null
	cp -r "$CLIENTS_DIR/vite" "$SBX_DIR/app"
	cd "$SBX_DIR/app"
	echo '<!doctype html><script type=module src=/main.js></script>' >index.html
	echo 'document.title = "first"; import.meta.hot?.accept()' >main.js
	(inside_net dev node node_modules/vite/bin/vite.js --port 5173 --strictPort) >"$SBX_DIR/vite.log" 2>&1 </dev/null 3>&- &
	echo $! >"$SBX_DIR/vite.pid"
	sandbox tunnel create dev --port 5173 --subdomain app >/dev/null
	sandbox tunnel create dev --port 5173 --subdomain kept --host-header keep >/dev/null
	until_ok 60 visit app /
}

teardown_file() {
	[ -z "${SBX_DIR:-}" ] || { kill "$(cat "$SBX_DIR/vite.pid")" 2>/dev/null || true; sbx_stop; }
}

visit() {
	curl -fsS -m 10 --resolve "$1.boxes.example:$EDGE:127.0.0.1" "${@:3}" "http://$1.boxes.example:$EDGE$2"
}

@test "with the Host rewritten the page and its modules load" {
	visit app / | grep -q '/@vite/client'
	visit app /main.js | grep -q first
	visit app /@vite/client | grep -q 'vite-hmr'
}

@test "with the Host kept Vite's own check refuses the name" {
	[ "$(visit kept / -o /dev/null -w '%{http_code}' 2>/dev/null || true)" = 403 ]
}

@test "hot reloading: a changed file is told over the WebSocket" {
	local token
	token=$(visit app /@vite/client | sed -n 's/.*wsToken = "\([^"]*\)".*/\1/p')
	visit app /main.js >/dev/null
	cat >"$SBX_DIR/app/hmr.mjs" <<-'JS'
		import WebSocket from 'ws'
		import { appendFileSync } from 'fs'
		import { lookup } from 'dns'
		const [edge, token] = process.argv.slice(2)
		const url = `ws://app.boxes.example:${edge}/?token=${token}`
		const ws = new WebSocket(url, 'vite-hmr', { perMessageDeflate: true, origin: `http://app.boxes.example:${edge}`,
			lookup: (host, options, done) => options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4) })
		ws.on('message', text => {
			const message = JSON.parse(text)
			console.log(message.type)
			if (message.type === 'connected') setTimeout(() => appendFileSync('main.js', '\ndocument.title = "second"'), 200)
			if (message.type === 'update' || message.type === 'full-reload') ws.close(1000)
		})
		ws.on('close', code => process.exit(code === 1000 || code === 1005 ? 0 : 1))
		ws.on('error', e => { console.log(String(e)); process.exit(1) })
	JS
	cd "$SBX_DIR/app"
	run -0 timeout 30 node hmr.mjs "$EDGE" "$token"
	[[ $output == connected* ]]
	[[ $output == *update* || $output == *full-reload* ]]
	visit app /main.js | grep -q second
}
