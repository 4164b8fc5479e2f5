#!/usr/bin/env bats
# What was changed in a workspace comes out as a patch that git takes, and nothing that a sandbox wrote decides anything here.
load ../lib/helpers.bash

setup_file() {
	command -v git >/dev/null || skip "no git"
	need_engine
	sbx_start
	export GIT_CONFIG_GLOBAL=$SBX_DIR/gitconfig GIT_CONFIG_NOSYSTEM=1
	git config --global user.name test
	git config --global user.email test@localhost
	git config --global init.defaultBranch main
	SRC=$SBX_DIR/src
	export SRC
	source_tree "$SRC"
	run_agent work --upload "$SRC" >/dev/null
}

teardown_file() {
	[ -z "${SBX_DIR:-}" ] || sbx_stop
}

# A repository as a user has one, with things that are in no patch.
source_tree() {
	mkdir -p "$1/lib" "$1/node_modules/x"
	(
		cd "$1"
		git init -q .
		printf 'node_modules/\n*.log\n!keep.log\n' >.gitignore
		printf 'one\ntwo\nthree\n' >a.txt
		printf 'int x;\n' >lib/x.c
		head -c 3000 /dev/urandom >blob.bin
		printf '#!/bin/sh\n' >run.sh
		chmod 755 run.sh
		ln -s a.txt link
		echo gone >old.txt
		git add -A
		git commit -qm first
		echo big >node_modules/x/index.js
	)
}

# run_agent NAME OPTION…: an agent's sandbox, whatever its image has; prints the id.
run_agent() {
	local name=$1
	shift
	timeout 60 sandbox agent run codex --image "$IMAGE" --network deny --no-needs-secrets --no-untrusted-repo --sensitivity internal --memory 256m \
		--disk 64m --cpus 0.5 --pids 64 --name "$name" "$@"
}

inside() {
	timeout 60 sandbox exec "$1" -w /workspace -- sh -c "$2"
}

# Everything but .git and what the source ignores, with contents and modes.
print_tree() {
	(cd "$1" && find . -name .git -prune -o -name node_modules -prune -o -name .home -prune -o -name lost+found -prune -o ! -name '*.log' ! -type d -print |
		sort | while read -r f; do echo "$f $(stat -c '%A' "$f") $(if [ -L "$f" ]; then readlink "$f"; else sha256sum <"$f"; fi)"; done)
}

@test "nothing changed is said so" {
	run -0 --separate-stderr timeout 60 sandbox diff work
	[ -z "$output" ]
	[[ $stderr == *"nothing was changed"* ]]
	run -0 --separate-stderr timeout 60 sandbox collect work -o "$SBX_DIR/none.patch"
	[ ! -e "$SBX_DIR/none.patch" ]
	run -0 --separate-stderr timeout 60 sandbox diff --json work
	jq -e '.files == [] and .base == "upload" and .insertions == 0' <<<"$output"
}

@test "text, bytes, modes, links, renames and hard links go through git apply" {
	inside work 'sed -i s/two/zwei/ a.txt; mkdir -p new/deep; printf "int y;\n" >new/deep/y.c; ln new/deep/y.c new/z.c; head -c 2500000 /dev/urandom >blob.bin
		chmod 755 lib/x.c; ln -sf lib/x.c link; rm old.txt; mv run.sh renamed.sh; printf "no end of line" >last; : >empty; touch "sp ace \"q\" é"
		dd if=/dev/zero of=holes bs=1 count=1 seek=300000 2>/dev/null; mkdir -p node_modules/y; echo n >node_modules/y/n.js; echo l >x.log; echo k >keep.log
		mkdir -p .home/.cache && echo secret >.home/.cache/token'
	cd "$SBX_DIR"
	run -0 --separate-stderr timeout 60 sandbox collect work
	[ "$output" = work.patch ]
	[ "$(stat -c %a work.patch)" = 600 ]
	[[ $stderr == *renamed.sh* && $stderr == *"entries that .gitignore names"* ]]
	run -5 --separate-stderr timeout 60 sandbox collect work
	timeout 60 sandbox collect -q -o work.patch work
	timeout 60 sandbox diff work | cmp - work.patch
	! grep -q "secret\|node_modules/y\|x\.log" work.patch || false
	git clone -q "$SRC" applied
	git -C applied apply --check ../work.patch
	git -C applied apply ../work.patch
	mkdir fetched
	timeout 60 sandbox cp work:/workspace/. fetched
	diff <(print_tree applied) <(print_tree fetched)
	run -0 --separate-stderr timeout 60 sandbox diff --json work
	jq -e '[.files[] | select(.path == "a.txt")] == [{path: "a.txt", insertions: 1, deletions: 1}]' <<<"$output"
	jq -e '.files[] | select(.path == "blob.bin") | .insertions == null' <<<"$output"
	timeout 60 sandbox diff --stat work | grep -q 'a.txt'
	# Nothing of a comparison is left behind.
	[ "$(find "$XDG_STATE_HOME/sandbox/baselines" -mindepth 1 -maxdepth 1 | wc -l)" = 1 ]
}

@test "settings, hooks, filters and attributes written inside start nothing here" {
	run_agent hostile --upload "$SRC" >/dev/null
	inside hostile 'mkdir -p .git/hooks sub/.git/hooks .GIT; for d in .git sub/.git; do
		printf "[core]\n\tfsmonitor = touch '"$SBX_DIR"'/ran\n\tbare = false\n\trepositoryformatversion = 0\n[diff \"x\"]\n\ttextconv = touch '"$SBX_DIR"'/ran\n\tcommand = touch '"$SBX_DIR"'/ran\n[filter \"x\"]\n\tclean = touch '"$SBX_DIR"'/ran\n\tsmudge = touch '"$SBX_DIR"'/ran\n" >$d/config
		echo "ref: refs/heads/main" >$d/HEAD; mkdir -p $d/refs $d/objects; printf "#!/bin/sh\ntouch '"$SBX_DIR"'/ran\n" >$d/hooks/post-checkout; chmod 755 $d/hooks/*; done
		printf "* filter=x diff=x\n" >.gitattributes; echo "*" >sub/.gitignore; echo content >sub/file; echo changed >a.txt; ln -s /etc/passwd out; ln -s .. up'
	timeout 60 sandbox diff hostile >"$SBX_DIR/hostile.patch"
	[ ! -e "$SBX_DIR/ran" ]
	# What it wrote is shown, its .gitignore hides nothing, and no link is followed.
	grep -q '^+changed' "$SBX_DIR/hostile.patch"
	grep -q '^diff --git a/sub/file b/sub/file' "$SBX_DIR/hostile.patch"
	grep -q '^+/etc/passwd' "$SBX_DIR/hostile.patch"
	! grep -qi '^diff --git a/.*\.git/' "$SBX_DIR/hostile.patch" || false
	! grep -q "root:x:0" "$SBX_DIR/hostile.patch" || false
	git clone -q "$SRC" "$SBX_DIR/taken"
	git -C "$SBX_DIR/taken" apply "$SBX_DIR/hostile.patch"
	[ ! -e "$SBX_DIR/ran" ]
	timeout 60 sandbox delete hostile
}

@test "a terminal gets no control characters" {
	run_agent noisy >/dev/null
	inside noisy 'printf "\033]0;owned\007\033[2J\tx\342\200\256y\n" >f; : >"$(printf "n\033[31m")"'
	run -0 timeout 60 script -qec "sandbox diff noisy" /dev/null </dev/null
	[[ $output != *$'\033'* && $output == *'\x1b]0;owned\x07'* && $output == *$'\tx'* && $output != *$'\u202e'* ]]
	# Where nothing was uploaded everything is new, and elsewhere the bytes are exact.
	timeout 60 sandbox diff noisy | grep -q $'^+\033]0;owned'
	timeout 60 sandbox delete noisy
}

@test "without an upload a directory here is what is compared with" {
	sbx_create --name plain >/dev/null
	run -3 --separate-stderr timeout 60 sandbox diff plain
	[[ $stderr == *"--base DIR"* ]]
	timeout 60 sandbox cp "$SRC/a.txt" plain:/workspace
	run -0 --separate-stderr timeout 60 sandbox diff --base "$SRC" --json plain
	jq -e --arg src "$SRC" '.base == $src and ([.files[].path] | index("a.txt") == null and index("old.txt") != null and index("node_modules/x/index.js") == null)' <<<"$output"
	run -3 --separate-stderr timeout 60 sandbox diff --base /nowhere plain
	timeout 60 sandbox delete plain
}

@test "what is too much is said so, and what is not taken is bounded" {
	run_agent large >/dev/null
	inside large 'truncate -s 900G huge 2>/dev/null || truncate -s 40G huge; head -c 2000000 /dev/zero >z'
	run -2 --separate-stderr timeout 60 sandbox diff large
	[[ $stderr == *--max-size* ]]
	inside large 'rm huge'
	run -2 --separate-stderr timeout 60 sandbox diff --max-size 1m large
	run -0 --separate-stderr timeout 60 sandbox diff --max-size 2m --stat large
	timeout 60 sandbox delete large
}

@test "what was remembered goes with the sandbox" {
	id=$(run_agent brief --upload "$SRC")
	[ -d "$XDG_STATE_HOME/sandbox/baselines/$id" ]
	[ "$(stat -c %a "$XDG_STATE_HOME/sandbox/baselines")" = 700 ]
	timeout 60 sandbox delete brief
	[ ! -e "$XDG_STATE_HOME/sandbox/baselines/$id" ]
}

@test "a machine without git still uploads, and says what it lacks" {
	mkdir -p "$SBX_DIR/nogit"
	ln -sf "$BUILD/sandbox" "$SBX_DIR/nogit/sandbox"
	run -0 --separate-stderr env PATH="$SBX_DIR/nogit" /usr/bin/timeout 60 sandbox agent run codex --image "$IMAGE" --network deny --no-needs-secrets \
		--no-untrusted-repo --sensitivity internal --memory 256m --disk 64m --cpus 0.5 --pids 64 --name bare --upload "$SRC"
	[[ $stderr == *"git is needed"* ]]
	[ "$(timeout 60 sandbox exec bare -- cat /workspace/old.txt)" = gone ]
	run -3 --separate-stderr env PATH="$SBX_DIR/nogit" /usr/bin/timeout 60 sandbox diff --base "$SRC" bare
	[[ $stderr == *"git is needed"* ]]
	timeout 60 sandbox delete bare
}
