# Name a session by the end of its id, as all examples do, or as the last one.
# before: no short id worked, since ids of one hour share their beginning.
# now: the last six characters, and `last`, name it.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --no-sandbox
ends 0 holdfast run "Two." --scratch --model scripted:m.json --no-sandbox
ends 0 holdfast ps
short=$(awk '/One/ { print $1 }' "$SAID")
ends 0 holdfast show "$short"
shows "One."
ends 0 holdfast show last
shows "Two."
