# Runs test files several at a time (TEST_JOBS, 3 when unset: most of them wait more than they work), each under a time limit, and
# counts what they say. A file with a line `# run-alone: REASON` gets the machine for itself, after the others.
# For run-unit and run-bats: jobs_run FORMAT SECONDS FILE…, with `test_command FILE` saying what to run into the array CMD.
# shellcheck shell=bash disable=SC2034,SC2154 # JOB_* are for the caller, CMD is from it

declare -A JOB_PIDS=()
JOB_COUNTS=$(mktemp) || exit 1
trap 'rm -f "$JOB_COUNTS"' EXIT

# timeout gives the tests a process group of their own, which a terminal's interrupt does not reach: passed on, and waited for.
jobs_stop() {
	trap '' INT TERM HUP
	((${#JOB_PIDS[@]} == 0)) || kill "${!JOB_PIDS[@]}" 2>/dev/null
	wait
	exit 130
}
trap jobs_stop INT TERM HUP

# One file, in a process of its own; all its lines are printed at once, when it ended.
jobs_one() {
	local format=$1 seconds=$2 file=$3 start=$SECONDS out child rc p s f
	trap - EXIT
	out=$(mktemp) || exit 1
	child=
	trap 'trap "" INT TERM HUP; [ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null; rm -f "$out"; exit 130' INT TERM HUP
	test_command "$file"
	env --default-signal=INT,QUIT timeout -k 20 "$seconds" "${CMD[@]}" >"$out" 2>&1 </dev/null 3>&- 4>&- &
	child=$!
	wait "$child"
	rc=$? child=
	p=$(grep -c '^ok ' "$out")
	f=$(grep -c '^not ok ' "$out")
	# cmocka says `not ok N # SKIP name` of a skipped test, bats `ok N # skip`.
	s=$(grep -ciE '^ok .*# skip' "$out")
	p=$((p - s))
	f=$((f - $(grep -cE '^not ok [0-9]+ # SKIP' "$out")))
	s=$((s + $(grep -cE '^not ok [0-9]+ # SKIP' "$out")))
	# A program that died, or printed no test at all, is a failure whatever it counted.
	if ((f == 0)) && ((rc != 0 || p + s == 0)); then f=1; fi
	{
		# shellcheck disable=SC2059
		printf "$format %3d passed, %d failed, %d skipped  (%ds)\n" "$(test_name "$file")" "$p" "$f" "$s" $((SECONDS - start))
		if ((rc == 124 || rc == 137)); then echo "    it did not finish within $seconds s"; fi
		if ((f != 0)); then grep -v '^ok ' "$out" | sed 's/^/    /' | tail -n 120; fi
		if ((s != 0)); then grep -iE '^(not )?ok .*# skip' "$out" | sed 's/^/    /'; fi
	} >"$out.said"
	cat "$out.said"
	((f == 0 && (s == 0 || ${SANDBOX_TESTS_MUST_RUN:-0} != 1))) || [[ -z ${FAILURES_FILE:-} ]] || cat "$out.said" >>"$FAILURES_FILE"
	echo "$p $f $s" >>"$JOB_COUNTS"
	rm -f "$out" "$out.said"
}

jobs_wait() {
	local ended
	wait -n -p ended "${!JOB_PIDS[@]}"
	unset "JOB_PIDS[$ended]"
}

jobs_start() {
	local most=$1
	shift
	while ((${#JOB_PIDS[@]} >= most)); do jobs_wait; done
	jobs_one "$@" &
	JOB_PIDS[$!]=1
}

# Adds `passed failed skipped` to COUNTS_FILE; JOB_PASSED, JOB_FAILED and JOB_SKIPPED are the sums. 0 when none failed.
jobs_run() {
	local format=$1 seconds=$2 file alone=()
	shift 2
	for file in "$@"; do
		if [[ $file == *.bats ]] && grep -q '^# run-alone: ' "$file"; then
			alone+=("$file")
		else
			jobs_start "${TEST_JOBS:-3}" "$format" "$seconds" "$file"
		fi
	done
	while ((${#JOB_PIDS[@]} > 0)); do jobs_wait; done
	for file in "${alone[@]}"; do jobs_start 1 "$format" "$seconds" "$file"; done
	while ((${#JOB_PIDS[@]} > 0)); do jobs_wait; done
	read -r JOB_PASSED JOB_FAILED JOB_SKIPPED < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$JOB_COUNTS")
	[ -z "${COUNTS_FILE:-}" ] || cat "$JOB_COUNTS" >>"$COUNTS_FILE"
	((JOB_FAILED == 0))
}
