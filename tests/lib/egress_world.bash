# A restricted sandbox with real programs, and the Internet played by servers on a loopback address that the test's daemon opens.
# After helpers.bash, tls.bash and tools_image.bash.

ORIGIN=127.77.0.1

# A repository for apt with one package.
make_deb() {
	local deb=$W/deb
	mkdir -p "$deb/DEBIAN" "$deb/usr/share/demo" "$WWW/debian"
	echo from-apt >"$deb/usr/share/demo/text"
	printf 'Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: T <t@t>\nDescription: demo\n' >"$deb/DEBIAN/control"
	dpkg-deb -Zgzip --root-owner-group -b "$deb" "$WWW/debian/demo.deb" >/dev/null
	{
		cat "$deb/DEBIAN/control"
		printf 'Filename: ./demo.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s "$WWW/debian/demo.deb")" "$(sha256sum <"$WWW/debian/demo.deb" | cut -c1-64)"
	} >"$WWW/debian/Packages"
}

# A package for npm, one for pip, a repository for git.
make_content() {
	mkdir -p "$WWW/demo" "$WWW/simple/sandboxdemo" "$W/npm/package"
	echo hello-from-origin >"$WWW/hello"
	printf '{"name":"demo","version":"1.0.0"}' >"$W/npm/package/package.json"
	tar -C "$W/npm" -czf "$WWW/demo-1.0.0.tgz" package
	printf '{"name":"demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"demo","version":"1.0.0","dist":{"tarball":"https://npm.test/demo-1.0.0.tgz","shasum":"%s"}}}}' \
		"$(sha1sum <"$WWW/demo-1.0.0.tgz" | cut -c1-40)" >"$WWW/demo/index.html"
	python3 - "$WWW/simple/sandboxdemo/sandboxdemo-1.0-py3-none-any.whl" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("sandboxdemo.py", "x = 1\n")
    z.writestr("sandboxdemo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sandboxdemo\nVersion: 1.0\n")
    z.writestr("sandboxdemo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("sandboxdemo-1.0.dist-info/RECORD", "")
PY
	printf '<a href="sandboxdemo-1.0-py3-none-any.whl">sandboxdemo-1.0-py3-none-any.whl</a>' >"$WWW/simple/sandboxdemo/index.html"
	make_deb
	git init -q "$W/repo"
	git -C "$W/repo" -c user.name=t -c user.email=t@t commit -q --allow-empty -m first
	git clone -q --bare "$W/repo" "$WWW/repo.git"
	git -C "$WWW/repo.git" update-server-info
}

start_origin() {
	make_ca "$W/ca"
	make_cert "$W/ca" origin "DNS:ok.test,DNS:npm.test,DNS:pypi.test,DNS:git.test,DNS:other.test,DNS:www.deep.test,IP:$ORIGIN"
	mkfifo "$W/ready"
	python3 "$TOP/tests/lib/origin.py" "$ORIGIN" "$WWW" "$W/ca/origin.pem" "$W/ca/origin.key" "$W/requests" >"$W/ready" 2>"$W/origin.log" 3>&- 4>&- &
	ORIGIN_PID=$!
	read -r -t 20 _ <"$W/ready"
	export ORIGIN_PID
}

egress_setup() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "ports 80 and 443 need root"
	W=$(mktemp -d)
	WWW=$W/www
	TOOLS=sbx-egress-test:$$
	export W WWW TOOLS
	make_content
	start_origin
	tools_image "$TOOLS" "$W/ca/ca.pem"
	local hosts= name
	for name in ok npm pypi git other www.deep apt; do hosts="$hosts,$name.test=$ORIGIN"; done
	sbx_start --set 'egress.rules=!forbidden.test:*,*:*' --set "egress.open_addresses=$ORIGIN/32" \
		--set "egress.hosts=${hosts#,},private.test=10.9.8.7,meta.test=169.254.169.254,loop.test=127.0.0.1,mapped.test=::ffff:127.77.0.1,nat64.test=64:ff9b::a00:1,six.test=2002:7f4d:1::1,forbidden.test=$ORIGIN"
	BOX=$(sandbox create -q --image "$TOOLS" --disk-mib 64 --memory-mib 512 --network restricted --allow '!bad.deep.test:*' --allow '*.deep.test:*' --allow ok.test:* \
		--allow npm.test --allow pypi.test --allow git.test --allow private.test:* --allow meta.test:* --allow loop.test:* --allow mapped.test:* --allow nat64.test:* \
		--allow six.test:* --allow forbidden.test:* --allow 10.0.0.0/8:* --allow 127.0.0.0/8:* --allow 172.16.0.0/12:* --allow 192.168.0.0/16:* --allow 100.64.0.0/10:* \
		--allow 169.254.0.0/16:* --allow 0.0.0.0/8:* --allow '[::]/0:*')
	export BOX
}

egress_teardown() {
	sbx_stop
	[ -z "${ORIGIN_PID:-}" ] || kill "$ORIGIN_PID"
	[ -z "${TOOLS:-}" ] || docker rmi -f "$TOOLS" >/dev/null 2>&1 || true
	[ -z "${W:-}" ] || rm -rf "$W"
}

# inside COMMAND…
inside() {
	timeout 30 sandbox exec -w /tmp -e HOME=/tmp "$BOX" -- "$@"
}
