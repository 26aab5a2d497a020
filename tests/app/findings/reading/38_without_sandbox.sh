# Does this session isolate its tools?
# before: "hands none now; NOT SANDBOXED when there are".
# now: a sentence.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
ends 0 holdfast show one
shows "NOT SANDBOXED: tools of this session run without isolation"
hides "when there are"
