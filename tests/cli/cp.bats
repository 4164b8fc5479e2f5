#!/usr/bin/env bats
# cp: files in and out of a sandbox, as cp -a would, with a sandbox that is not trusted.
load ../lib/helpers

setup_file() {
	sbx_start
	ID=$(sandbox create --image "$IMAGE" --disk-mib 512 --memory-mib 256)
	export ID
}

teardown_file() {
	sbx_stop
}

setup() {
	mkdir "$BATS_TEST_TMPDIR/w"
	cd "$BATS_TEST_TMPDIR/w" || return 1
	# Every test has a directory of its own inside.
	R=/workspace/t$BATS_TEST_NUMBER
	timeout 10 sandbox exec --no-stdin "$ID" -- mkdir -p "$R"
}

inside() {
	timeout 20 sandbox exec --no-stdin "$ID" -- "$@"
}

cp_ok() {
	timeout 60 sandbox cp "$@"
}

@test "links stay links, dangling and circular ones too, both ways" {
	mkdir d
	echo x >d/f
	ln -s f d/good
	ln -s gone d/dangling
	ln -s . d/loop
	cp_ok d "$ID:$R"
	[ "$(inside sh -c "cd $R/d && readlink good dangling loop" | tr '\n' ' ')" = "f gone . " ] ||
		[ "$(inside sh -c "cd $R/d && for l in good dangling loop; do readlink \$l; done" | tr '\n' ' ')" = "f gone . " ]
	cp_ok "$ID:$R/d" back
	[ "$(readlink back/good) $(readlink back/dangling) $(readlink back/loop)" = "f gone ." ]
	[ "$(cat back/f)" = x ]
}

@test "places follow cp: into, as, contents of, and errors" {
	mkdir d e
	echo x >d/f
	echo y >f
	cp_ok d "$ID:$R"
	inside test -f "$R/d/f"
	cp_ok d/ "$ID:$R/slash/" || cp_ok d/ "$ID:$R/slash"
	inside test -f "$R/slash/f"
	cp_ok d/. "$ID:$R"
	inside test -f "$R/f"
	cp_ok f "$ID:$R/newname"
	inside test -f "$R/newname"
	cp_ok f "$ID:$R/d/"
	[ "$(inside cat "$R/d/f")" = y ]
	run -3 --separate-stderr cp_ok f "$ID:$R/nodir/"
	[[ $stderr == *"$R/nodir"* ]]
	run ! cp_ok d "$ID:$R/newname"
	run ! cp_ok f "$ID:$R/nodir/deeper/x"
	cp_ok "$ID:/etc/passwd" ./h
	[ -f h ]
	cp_ok "$ID:/etc" ./e
	[ -f e/etc/passwd ]
	cp_ok "$ID:/etc" ./e2
	[ -f e2/passwd ]
	cp_ok "$ID:/etc/." ./e
	[ -f e/passwd ]
	run ! cp_ok "$ID:/etc/passwd" ./nodir/
	[ ! -e nodir ]
	run ! cp_ok "$ID:/etc" ./h
	[ -f h ]
}

@test "relative paths inside start in the working directory" {
	echo rel >f
	cp_ok f "$ID:t$BATS_TEST_NUMBER/rel"
	[ "$(inside cat "$R/rel")" = rel ]
	cp_ok "$ID:t$BATS_TEST_NUMBER/rel" back
	cmp f back
	cp_ok f "$ID:."
	inside test -f /workspace/f
}

@test "an empty argument is a usage error and copies nothing" {
	touch f
	for args in "|$ID:/tmp" "$ID:|." "f|" "f|$ID:" "f|g" "$ID:/a|$ID:/b" "|"; do
		run -2 --separate-stderr cp_ok "${args%%|*}" "${args##*|}"
		[ -n "$stderr" ]
	done
	[ "$(ls)" = f ]
	run -2 timeout 10 sandbox cp f
}

@test "a missing source is an error that names it and leaves nothing" {
	run -3 --separate-stderr cp_ok "$ID:/nope" ./x
	[[ $stderr == *"/nope"* ]]
	[ ! -e x ]
	run -3 --separate-stderr cp_ok ./nothing-here "$ID:$R"
	[[ $stderr == *nothing-here* ]]
	run -3 --separate-stderr cp_ok "no-such-box:/x" ./x
	[ ! -e x ]
	[ -z "$(inside ls -A "$R")" ]
}

@test "what cannot be stored is an error, and no half file is left" {
	head -c 3000000 /dev/urandom >f
	run ! cp_ok f "$ID:/proc/f"
	run ! cp_ok "$ID:/etc/passwd" /proc/passwd
	small=$(sandbox create --image "$IMAGE" --disk-mib 64 --memory-mib 256)
	head -c 90000000 /dev/zero | tr '\0' x >big
	run -1 --separate-stderr cp_ok big "$small:/workspace"
	[[ $stderr == *"No space left"* ]]
	[ -z "$(timeout 10 sandbox exec --no-stdin "$small" -- sh -c 'ls -A /workspace | grep -v lost+found')" ]
	timeout 60 sandbox delete "$small"
	if [ "$(id -u)" -eq 0 ] && mkdir m && mount -t tmpfs -o size=1m none m 2>/dev/null; then
		cp_ok f "$ID:$R"
		run --separate-stderr cp_ok "$ID:$R/f" m/f
		left=$(ls -A m)
		umount m
		[ "$status" -ne 0 ]
		[[ $stderr == *"No space left"* ]]
		[ -z "$left" ]
	fi
}

@test "a copy whose top cannot be stored names both ends" {
	echo x >f
	run -1 --separate-stderr timeout 20 sandbox cp f "$ID:/etc/"
	[ "${stderr_lines[0]}" = "sandbox: warning: f to /etc/: Read-only file system" ]
	[ "${stderr_lines[1]}" = "sandbox: warning: 1 entry was not copied" ]
}

@test "one entry that cannot be stored is reported, the others are copied" {
	mkdir d
	echo 1 >d/a
	echo 2 >d/b
	inside mkdir -p "$R/d/a"
	run -1 --separate-stderr cp_ok d "$ID:$R"
	[[ $stderr == *"a: "* ]]
	[ "$(inside cat "$R/d/b")" = 2 ]
	inside sh -c "rmdir $R/d/a; echo 1 >$R/d/a"
	mkdir -p back/a
	run -1 --separate-stderr cp_ok "$ID:$R/d/." back
	[[ $stderr == *"a: "* ]]
	[ "$(cat back/b)" = 2 ]
}

@test "no byte of the host is reached through names or links inside" {
	echo hostsecret-$$ >"$SBX_DIR/secret"
	run ! cp_ok "$ID:../../../../../../../..$SBX_DIR/secret" out
	[ ! -e out ]
	inside ln -s "/proc/1/root$SBX_DIR" "$R/l"
	run ! cp_ok "$ID:$R/l/secret" out
	inside ln -s ../../../../../../../../etc "$R/etc"
	cp_ok "$ID:$R/etc/passwd" out
	[ "$(cat out)" = "$(inside cat /etc/passwd)" ]
	run cp_ok "$ID:/proc/self/root/etc/passwd" out2
	[ ! -e out2 ] || [ "$(cat out2)" = "$(inside cat /etc/passwd)" ]
}

@test "a link planted where the copy goes is not followed" {
	mkdir d
	mkdir d/sub
	echo evil >d/sub/f
	inside sh -c "mkdir $R/d && ln -s /etc $R/d/sub"
	run -1 --separate-stderr cp_ok d "$ID:$R"
	run ! inside test -e /etc/f
}

@test "long names and deep paths, odd bytes, both ways" {
	mkdir d
	n101=$(printf 'n%.0s' $(seq 101))
	n255=$(printf 'm%.0s' $(seq 255))
	echo 1 >"d/$n101"
	echo 2 >"d/$n255"
	echo 3 >"d/"$'new\nline'
	echo 4 >'d/back\slash'
	echo 5 >"d/"$'nfd-e\xcc\x81'
	echo 6 >"d/"$'bad\xff'
	ln -s "$(printf 'l%.0s' $(seq 200))" d/longlink
	deep=d
	(
		cd d
		for _ in $(seq 100); do mkdir directory-of-thirty-characters && cd directory-of-thirty-characters || exit 1; done
		echo deep >leaf
	)
	cp_ok d "$ID:$R"
	cp_ok "$ID:$R/d" back
	diff -r --no-dereference d back
	cp_ok "$ID:$R/d" - >t.tar
	mkdir untar
	tar xf t.tar -C untar
	diff -r --no-dereference d untar/d
	tar cf - d | cp_ok - "$ID:$R/fromtar"
	cp_ok "$ID:$R/fromtar/d" back2
	diff -r --no-dereference d back2
	tar --format=gnu -cf - d | cp_ok - "$ID:$R/gnutar"
	cp_ok "$ID:$R/gnutar/d" back3
	diff -r --no-dereference d back3
	[ "$deep" = d ]
}

@test "modes and times are kept; owners are the caller's here and the sandbox user's there" {
	echo x >f
	chmod 640 f
	touch -d '2001-02-03 04:05:06.123456789' f
	cp_ok f "$ID:$R/f"
	[ "$(inside stat -c %a "$R/f")" = 640 ]
	cp_ok "$ID:$R/f" back
	[ "$(stat -c '%a %y' back)" = "$(stat -c '%a %y' f)" ]
	inside sh -c "echo y >$R/big; chown 3000000:3000000 $R/big 2>/dev/null; chmod 0 $R/big; true"
	cp_ok "$ID:$R/big" back2
	[ "$(stat -c '%u %a' back2)" = "$(id -u) 0" ]
	inside sh -c "cp /bin/busybox $R/suid 2>/dev/null || echo z >$R/suid; chmod 6755 $R/suid"
	cp_ok "$ID:$R/suid" back3
	[ "$(stat -c %a back3)" = 755 ]
}

@test "holes stay holes; FIFOs and sockets are skipped with a warning" {
	inside truncate -s 10G "$R/big" || inside sh -c "dd if=/dev/zero of=$R/big bs=1 count=0 seek=10G 2>/dev/null"
	cp_ok "$ID:$R/big" big
	[ "$(stat -c %s big)" -eq 10737418240 ]
	[ "$(du -k big | cut -f1)" -lt 1000 ]
	cp_ok big "$ID:$R/up"
	[ "$(inside sh -c "du -k $R/up | cut -f1")" -lt 1000 ]
	mkdir d
	mkfifo d/fifo
	echo x >d/f
	run -0 --separate-stderr cp_ok d "$ID:$R"
	[[ $stderr == *fifo*skipped* ]]
	inside sh -c "mkdir $R/e && mkfifo $R/e/pipe && echo y >$R/e/f"
	run -0 --separate-stderr cp_ok "$ID:$R/e" e
	[[ $stderr == *pipe*skipped* ]]
	[ "$(cat e/f)" = y ]
}

@test "the user's own destination may be reached through a link" {
	mkdir real
	ln -s real link
	cp_ok "$ID:/etc/passwd" "$PWD/link/h"
	[ -f real/h ]
	cp_ok "$ID:/etc/passwd" link
	[ -f real/passwd ]
	[ -L link ]
}

@test "--verify compares both sides, --dry-run copies nothing, --json reports" {
	mkdir -p d/sub
	head -c 1000000 /dev/urandom >d/a
	echo x >d/sub/b
	run -0 --separate-stderr cp_ok --verify d "$ID:$R"
	[[ $stderr == *"2 files verified"* ]]
	run -0 --separate-stderr cp_ok --verify --json "$ID:$R/d" back
	[[ $output == *'"verified":2'*"$(sha256sum <d/a | cut -d' ' -f1)"* ]]
	run -0 --separate-stderr cp_ok --dry-run d "$ID:$R/dry"
	[ "$output" = $'.\na\nsub\nsub/b' ]
	run ! inside test -e "$R/dry"
	run -0 --separate-stderr cp_ok -n "$ID:$R/d" dry
	[ "$output" = $'.\na\nsub\nsub/b' ]
	[ ! -e dry ]
}

@test "hard links and attributes go along, both ways and as tar" {
	mkdir d
	echo one >d/a
	ln d/a d/b
	cp_ok d "$ID:$R"
	[ "$(inside stat -c %i "$R/d/a")" = "$(inside stat -c %i "$R/d/b")" ]
	cp_ok "$ID:$R/d" back
	[ back/a -ef back/b ]
	cp_ok "$ID:$R/d" - >t.tar
	tar tvf t.tar | grep -q 'd/b link to d/a'
	tar xf t.tar
	[ d/a -ef d/b ]
	cp_ok - "$ID:$R/fromtar" <t.tar
	[ "$(inside stat -c %i "$R/fromtar/d/a")" = "$(inside stat -c %i "$R/fromtar/d/b")" ]
	python3 -c 'import os; os.setxattr("d/a", "user.note", b"n\0te")' || skip "no extended attributes in $PWD"
	cp_ok d "$ID:$R/x"
	cp_ok "$ID:$R/x" xback
	python3 -c 'import os, sys; sys.exit(os.getxattr("xback/a", "user.note") != b"n\0te")'
	cp_ok "$ID:$R/x" - >x.tar
	cp_ok - "$ID:$R/y" <x.tar
	cp_ok "$ID:$R/y/x/a" yback
	python3 -c 'import os, sys; sys.exit(os.getxattr("yback", "user.note") != b"n\0te")'
}

@test "a copy that is interrupted leaves nothing of a new directory, there or here" {
	mkdir d
	head -c 1000 /dev/urandom >d/a
	mkfifo feed
	exec 8<>feed
	tar cf part.tar d
	head -c 2048 part.tar >&8
	timeout 20 sandbox cp - "$ID:$R/new" <feed 8>&- 3>&- &
	pid=$!
	until_ok 10 bash -c "[ -n \"\$(timeout 10 sandbox exec --no-stdin '$ID' -- ls -A '$R')\" ]"
	run ! inside test -e "$R/new"
	kill -TERM "$pid"
	wait "$pid" || true
	exec 8>&-
	until_ok 10 bash -c "[ -z \"\$(timeout 10 sandbox exec --no-stdin '$ID' -- ls -A '$R')\" ]"
}

@test "an interrupt ends a copy and leaves no part of a file" {
	inside sh -c "head -c 300000000 /dev/zero | tr '\\0' x >$R/big"
	sandbox cp "$ID:$R/big" got 3>&- &
	pid=$!
	sleep 0.1
	kill -TERM "$pid" || true # it may be through
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 143 ] || [ "$rc" -eq 0 ]
	[ "$rc" -eq 0 ] || [ -z "$(ls -A)" ]
	inside rm "$R/big"
}

@test "a tar stream that is none, or is cut, is refused" {
	run -2 --separate-stderr bash -c 'echo hello | timeout 20 sandbox cp - "$ID:$0/x"' "$R"
	[ -n "$stderr" ]
	mkdir d
	head -c 100000 /dev/urandom >d/f
	run -2 --separate-stderr bash -c 'tar cz d | timeout 20 sandbox cp - "$ID:$0/x"' "$R"
	[[ $stderr == *compressed* ]]
	run -2 bash -c 'tar c d | head -c 50000 | timeout 20 sandbox cp - "$ID:$0/y"' "$R"
	run ! inside test -e "$R/y/d/f"
}

@test "ten thousand small files" {
	mkdir d
	for i in $(seq 100); do mkdir "d/$i" && for j in $(seq 100); do echo "$i $j" >"d/$i/$j"; done; done
	cp_ok d "$ID:$R"
	cp_ok "$ID:$R/d" back
	diff -r d back
}

@test "copies need no program inside" {
	inside sh -c "rm -rf $R; mkdir $R"
	echo x >f
	cp_ok f "$ID:$R/f"
	cp_ok --verify "$ID:$R" back
	[ -f back/f ]
}

@test "without a name before the colon the sandbox of this directory is meant" {
	echo x >f
	run -2 --separate-stderr cp_ok :f back
	[[ $stderr == *"sandbox use"* ]]
	sandbox use "$ID"
	cp_ok f ":$R/f"
	cp_ok ":$R/f" back
	cmp f back
	cp_ok ./f ./:local 2>/dev/null && false
	touch ./:local
	cp_ok ./:local ":$R/colon"
	inside test -e "$R/colon"
}
