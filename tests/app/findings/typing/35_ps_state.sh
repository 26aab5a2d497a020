# List the sessions that are done, with the flag of other tools.
# before: "did you mean --tree?"
# now: no wrong guess, and an example of a filter, which works.
. "$LIB"
ends 2 holdfast ps --state done
hides "--tree"
shows "for example: holdfast ps is:parked"
ends 0 holdfast ps is:parked
