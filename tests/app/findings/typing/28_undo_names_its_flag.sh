# Undo to an event that does not exist.
# before: "--at 999: ...; for example --at 23", a flag that `undo` does not have.
# now: the error names --to, and its example works.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
ends 0 holdfast run "Write." --scratch --model scripted:m.json --session-id k --no-sandbox
ends 2 holdfast undo k --to 999
shows "--to 999" "for example --to"
hides "--at"
ends 0 holdfast undo k $(grep -o "\-\-to [0-9]*$" "$SAID")
