# Compare the files of two events between which nothing changed, or of a session that used no files.
# before: a header and silence; "name another position", though there was none.
# now: both are said.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
ends 0 holdfast run "Write." --scratch --model scripted:m.json --session-id k --no-sandbox
ends 0 holdfast logs k --type shift.ended
last=$(awk '{ print $4 }' "$SAID")
ends 0 holdfast diff k --at "$last" "$last"
shows "no file differs"
model "$(says Done.)"
ends 0 holdfast run "Say it." --scratch --model scripted:m.json --session-id talk --no-sandbox
ends 2 holdfast diff talk
shows "has kept no files"
hides "name another position"
