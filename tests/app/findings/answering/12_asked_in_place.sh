# A run on a terminal needs a yes.
# before: it ended with status 3; approve, attach, and again: three commands for one "y".
# now: it asks there, and goes on.
. "$LIB"
model "$(bash_call "echo pushed > log.txt")" "$(says Pushed.)"
ends 0 on_terminal 80 Approve=y -- holdfast run "Push." --scratch --model scripted:m.json --ask bash --no-sandbox
shows "Pushed."
