# `holdfast --home DIR ps` and `holdfast -V`, as with other tools.
# before: "invalid choice: 'DIR'", and "a verb is missing before -V".
# now: both work.
. "$LIB"
ends 0 holdfast --home ./elsewhere ps
shows "no sessions yet"
ends 0 holdfast -V
shows "holdfast 0."
