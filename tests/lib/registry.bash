# A registry that wants a login (user puller, $REGISTRY_PASSWORD; a second user, other, with the same), on $REGISTRY = 127.0.0.1:PORT.
# Needs helpers.bash. Without docker-registry the file that wants it is skipped.

REGISTRY_PASSWORD=pull-secret-7141

# registry_start DIR
registry_start() {
	export REGISTRY REGISTRY_DIR=$1
	mkdir -p "$REGISTRY_DIR/docker"
	REGISTRY=127.0.0.1:$(free_port)
	echo "$REGISTRY" >"$REGISTRY_DIR/address"
	cat >"$REGISTRY_DIR/htpasswd" <<-'END'
		puller:$2y$05$bvqMJSyAx7.Y40hdCWo12.h//zzpNypym6JG9gGGpgfu9fzc15yi6
		other:$2y$05$bvqMJSyAx7.Y40hdCWo12.h//zzpNypym6JG9gGGpgfu9fzc15yi6
	END
	cat >"$REGISTRY_DIR/config.yml" <<-END
		version: 0.1
		log: { level: info, accesslog: { disabled: false } }
		storage: { filesystem: { rootdirectory: $REGISTRY_DIR/data } }
		http: { addr: "$REGISTRY" }
		auth: { htpasswd: { realm: test, path: $REGISTRY_DIR/htpasswd } }
	END
	registry_run
}

registry_run() {
	docker-registry serve "$REGISTRY_DIR/config.yml" >>"$REGISTRY_DIR/log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$REGISTRY_DIR/pid"
	until_ok 30 registry_answers
}

registry_answers() {
	[ "$(curl -s -o /dev/null -w '%{http_code}' "http://$REGISTRY/v2/")" = 401 ]
}

# registry_push FROM NAME: an image of the engine, under REGISTRY/NAME.
registry_push() {
	export DOCKER_CONFIG=$REGISTRY_DIR/docker
	docker login -u puller --password-stdin "$REGISTRY" <<<"$REGISTRY_PASSWORD" >/dev/null 2>&1
	docker tag "$1" "$REGISTRY/$2"
	docker push -q "$REGISTRY/$2" >/dev/null
	docker rmi "$REGISTRY/$2" >/dev/null
}

# registry_stop DIR: also where another test began it.
registry_stop() {
	local pid image REGISTRY
	[ -e "$1/pid" ] || return 0
	pid=$(cat "$1/pid")
	REGISTRY=$(cat "$1/address")
	kill "$pid" 2>/dev/null && sbx_gone "$pid"
	# By name and by digest: the latter outlives its tag.
	for image in $(docker images --digests --format '{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}' | tr ' ' '\n' | grep "^$REGISTRY/"); do
		docker rmi "$image" >/dev/null 2>&1 || true
	done
	rm -rf "$1"
}
