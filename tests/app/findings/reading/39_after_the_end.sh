# Read the events after the last one.
# before: nothing, with status 0.
# now: which events there are.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
ends 0 holdfast logs one --after 999
shows "no event after 999: one has the events 1 to"
ends 0 holdfast logs one --after 1 --type shift.ended
shows "shift.ended"
hides "no event after"
