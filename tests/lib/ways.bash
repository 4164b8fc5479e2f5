# The ways out of sandboxes, tried from inside with tests/lib/ways.c. After helpers.bash and tls.bash.

# In setup_file: the program, and a server of this machine on all its addresses, TCP and UDP.
ways_setup() {
	"${CC:-gcc}" -static -O1 -o "$SBX_DIR/ways" "$TOP/tests/lib/ways.c"
	WAYS_PORT=$(free_port)
	export WAYS_PORT
	mkfifo "$SBX_DIR/ways.ready"
	python3 "$TOP/tests/lib/network_world.py" host "$WAYS_PORT" >"$SBX_DIR/ways.ready" 2>"$SBX_DIR/ways.log" </dev/null 3>&- 4>&- &
	WAYS_SERVER=$!
	export WAYS_SERVER
	local line=
	read -r -t 60 line <"$SBX_DIR/ways.ready"
	[ "$line" = ready ]
}

ways_teardown() {
	[ -z "${WAYS_SERVER:-}" ] || kill "$WAYS_SERVER" 2>/dev/null || true
}

ways_own() {
	ip -o addr show scope global | sed 's|.*inet6\{0,1\} \([0-9a-f.:]*\)/.*|\1|'
}

# What is there to be reached.
ways_there() {
	local a
	for a in $(ways_own); do
		printf '%s\n' "tcp $a $WAYS_PORT" "udp $a $WAYS_PORT"
	done
}

# What a sandbox is to be kept from besides: metadata, private, link-local, other ways to write an address, IPv6 that means one of IPv4.
ways_elsewhere() {
	local a
	for a in 169.254.169.254 10.0.0.1 172.17.0.1 192.168.0.1 100.100.100.200 224.0.0.1 255.255.255.255; do
		printf '%s\n' "tcp $a 80" "udp $a 80" "dns $a" "ping $a"
	done
	printf 'tcp %s 80\n' 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.16689662 0xa9.254.0251.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 fd00:ec2::254 fe80::1 ff02::1
}

# The Internet, for where it is to be out of reach too.
ways_public() {
	printf '%s\n' "tcp 1.1.1.1 443" "udp 1.1.1.1 443" "dns 1.1.1.1" "ping 1.1.1.1" "tcp 2606:4700:4700::1111 443" "dns 2606:4700:4700::1111"
}

# The positive control: it answers here, by the same program. (UDP on all addresses may answer by another of them.)
ways_answer_here() {
	ways_there | "$SBX_DIR/ways" reach >"$BATS_TEST_TMPDIR/here"
	cat "$BATS_TEST_TMPDIR/here"
	run ! grep '^tcp .* no$' "$BATS_TEST_TMPDIR/here"
	grep -q '^tcp .* yes$' "$BATS_TEST_TMPDIR/here"
	grep -q '^udp .* yes$' "$BATS_TEST_TMPDIR/here"
}

# ways_give BOX
ways_give() {
	timeout 60 sandbox cp "$SBX_DIR/ways" "$1:/workspace/ways"
}

# ways_none BOX: lines on stdin, of which none is reached from inside; nor is there another kind of way.
ways_none() {
	local n
	cat >"$BATS_TEST_TMPDIR/lines"
	n=$(wc -l <"$BATS_TEST_TMPDIR/lines")
	timeout 90 sandbox exec "$1" -- /workspace/ways reach <"$BATS_TEST_TMPDIR/lines" >"$BATS_TEST_TMPDIR/reached"
	cat "$BATS_TEST_TMPDIR/reached"
	[ "$(grep -c ' no$' "$BATS_TEST_TMPDIR/reached")" -eq "$n" ]
	run -0 timeout 90 sandbox exec --user root "$1" -- /workspace/ways sockets
	[[ $output == *"raw ICMP: "* ]]
}

# What no proxy may lead to although rules allow everything: the same addresses in every notation, and names that lead to them.
ways_targets() {
	local a
	for a in $(ways_own) 127.0.0.1 169.254.169.254 10.0.0.1 172.17.0.1 192.168.0.1 100.100.100.200 0.0.0.0 ::1 :: ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 fd00:ec2::254 \
		fe80::1 ff02::1; do
		case $a in
		*:*) printf '%s\n' "[$a]:$WAYS_PORT" "http://[$a]:$WAYS_PORT/" ;;
		*) printf '%s\n' "$a:$WAYS_PORT" "http://$a:$WAYS_PORT/" ;;
		esac
	done
	printf '%s:80\n' 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.16689662 0xa9.254.0251.254 169.254.169.254. '[::ffff:a9fe:a9fe%25lo]' 'ok.test@169.254.169.254'
	for a in private meta loop mapped; do
		printf '%s\n' "$a.test:80" "http://$a.test/"
	done
}

WAYS_HOSTS=private.test=10.9.8.7,meta.test=169.254.169.254,loop.test=127.0.0.1,mapped.test=::ffff:169.254.169.254

# ways_refused BOX: the proxy of a restricted sandbox refuses them all, with a status.
ways_refused() {
	local n
	ways_targets >"$BATS_TEST_TMPDIR/targets"
	n=$(wc -l <"$BATS_TEST_TMPDIR/targets")
	timeout 120 sandbox exec "$1" -- /workspace/ways ask <"$BATS_TEST_TMPDIR/targets" >"$BATS_TEST_TMPDIR/asked"
	cat "$BATS_TEST_TMPDIR/asked"
	[ "$(grep -c ' 40[03]$' "$BATS_TEST_TMPDIR/asked")" -eq "$n" ]
}
