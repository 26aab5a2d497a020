# Press Ctrl-C at a question on the terminal.
# before: the next words followed on the same line: "later): ^Cdb is parked".
# now: they begin on a new line; the session is parked.
. "$LIB"
model "$(question "Postgres or SQLite?")"
ends 130 on_terminal 100 "Your answer=ctrl-c" -- holdfast run "Choose." --scratch --model scripted:m.json --session-id db --no-sandbox
grep -q "^db is parked" "$SAID" || fail "the words do not begin a line"
