# Helpers of the scripts in this folder, which `tests/app/test_findings.py` runs in an empty directory with an empty HOME.
set -eu

# A model script in m.json with these turns. Each turn costs something.
model() {
  printf '{"turns": [%s], "price": {"input_per_mtok": 3, "output_per_mtok": 15}}' "$(IFS=,; printf '%s' "$*")" > m.json
}

# One turn of a model: it says something, calls bash, or asks a question.
says() { printf '{"text": "%s"}' "$1"; }
bash_call() { printf '{"tool_calls": [{"name": "bash", "input": {"command": "%s"}}]}' "$1"; }
question() { printf '{"tool_calls": [{"name": "ask_person", "input": {"question": "%s"}}]}' "$1"; }

# Run a command and require its exit status. What it printed is in the file $SAID.
ends() {
  wanted=$1; shift
  status=0; "$@" > "$SAID" 2>&1 < /dev/null || status=$?
  [ "$status" = "$wanted" ] || fail "ended with $status instead of $wanted: $*"
}

# Require, or exclude, words in what the last command printed. Runs of blanks and line ends count as one blank.
shows() { for words; do tr -s ' \n' '  ' < "$SAID" | grep -qF -- "$words" || fail "does not show: $words"; done; }
hides() { for words; do ! tr -s ' \n' '  ' < "$SAID" | grep -qF -- "$words" || fail "shows: $words"; done; }


# Wait for words in what a command prints, which is repeated until then.
await() { words=$1; shift; for _ in $(seq 600); do "$@" > "$SAID" 2>&1 || true; grep -qF -- "$words" "$SAID" && return; sleep 0.1; done; fail "never shows: $words"; }

fail() { echo "FAILED: $*"; cat "$SAID"; exit 1; }
