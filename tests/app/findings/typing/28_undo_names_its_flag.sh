# Undo to an event that does not exist.
# before: "--at 999: ...; for example --at 23", a flag that `undo` does not have.
# now: the error names the events that exist, and no flag; the last one works.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
ends 0 holdfast run "Write." --scratch --model scripted:m.json --session-id k --no-sandbox
ends 2 holdfast undo k --to 999
shows "there is no event 999"
hides "--at"
ends 0 holdfast undo k --to "$(sed 's/.*events 1 to \([0-9]*\).*/\1/' "$SAID")"
