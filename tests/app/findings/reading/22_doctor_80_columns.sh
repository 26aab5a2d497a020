# Read `doctor` at 80 columns.
# before: lines of 330 characters, cut in the middle of a word; nothing about git.
# now: it fits, and begins with what is possible and what to do.
. "$LIB"
ends 0 on_terminal 80 -- holdfast doctor
head -5 "$SAID" | grep -q "no model can be asked" || fail "the first lines do not say what to do"
if sed -n '/^  /,$p' "$SAID" | grep -q "^[^ ]"; then fail "a line is cut by the edge of the terminal"; fi
shows "git:"
