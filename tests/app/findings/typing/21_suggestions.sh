# Type the word of another tool, a typo, or a type that does not exist.
# before: `ls` proposed logs, `help` printed all verbs in a line, `--modle` got nothing, `--type` printed 94 names.
# now: the near word, or a short list.
. "$LIB"
ends 2 holdfast ls
shows "did you mean 'ps'?"
ends 2 holdfast login
hides "did you mean"
ends 0 holdfast help run
shows "usage: holdfast run"
ends 2 holdfast run x --modle y
shows "did you mean --model?"
ends 2 holdfast logs --type tool_result
shows "did you mean 'agent.tool_result'?"
ends 2 holdfast logs --type nonsense
[ "$(wc -c < "$SAID")" -lt 250 ] || fail "an error of more than 250 characters"
