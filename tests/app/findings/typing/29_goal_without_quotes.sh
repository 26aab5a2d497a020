# Type a goal, a message, or an answer without quotes.
# before: "unrecognized arguments: the failing test".
# now: the error says to quote it, and shows the text in quotes.
. "$LIB"
model "$(says Done.)"
ends 2 holdfast run fix the failing test --scratch --model scripted:m.json
shows "put the text in quotes: \"fix the failing test\""
ends 2 holdfast send last use tabs please
shows "\"use tabs please\""
