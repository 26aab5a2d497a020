# Look up the words of `mission`, and the format of a model script.
# before: the reference had neither.
# now: both are in docs/reference, and each word has help.
. "$LIB"
for word in init lint run show amend; do
  grep -q "holdfast mission $word" "$DOCS/reference/cli.md" || fail "no holdfast mission $word in the reference"
  ends 0 holdfast mission "$word" --help
  shows "usage: holdfast mission $word"
done
for word in serve work queue key; do
  grep -q "holdfast hands $word" "$DOCS/reference/cli.md" || fail "no holdfast hands $word in the reference"
done
grep -q "## ScriptTurn" "$DOCS/reference/script.md"
