# What does the last column of `cost --by model` count, and does the table fit 60 columns?
# before: a number without a name; each row took two lines.
# now: a header, and one row each; `budget` too.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id a-rather-long-name-of-a-session-of-mine --no-sandbox
for command in "cost --by model" "cost --by session" "budget"; do
  ends 0 on_terminal 60 -- holdfast $command
  [ "$(wc -l < "$SAID")" = 3 ] || fail "not three rows: $command"
done
ends 0 holdfast cost --by model
shows "MODEL" "COST SESSIONS"
