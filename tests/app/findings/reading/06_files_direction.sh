# Which files did the session make after an event?
# before: `show --files` printed a file made later as removed.
# now: changes go from the earlier event to the later one, or to now.
. "$LIB"
model "$(bash_call "echo a > first")" "$(bash_call "echo b > newfile")" "$(says Done.)"
ends 0 holdfast run "Make files." --scratch --model scripted:m.json --session-id ff --no-sandbox
ends 0 holdfast logs ff --type tool.dispatched
seq=$(awk 'END { print $4 - 1 }' "$SAID")
ends 0 holdfast show ff --files "$seq"
shows "+ newfile"
hides "- newfile" "first"
ends 0 holdfast diff ff --at "$seq"
shows "new file mode" "+b"
