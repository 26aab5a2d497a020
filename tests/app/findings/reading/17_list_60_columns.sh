# List sessions on a terminal of 60 columns.
# before: two or three rows for each session, and a column of 30 for the id.
# now: one row each, and filters.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "Mend the failing test of the parser, and add one for empty input." --scratch --model scripted:m.json --no-sandbox
ends 0 on_terminal 60 -- holdfast ps
[ "$(wc -l < "$SAID")" = 2 ] || fail "not one row for the session"
ends 0 holdfast ps is:parked
shows "none of 1 session"
