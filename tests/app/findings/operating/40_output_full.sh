# Write a list to a full disk, from the installed command.
# before: the sentence, then "Exception ignored in" and status 120, unless PYTHONUNBUFFERED was set.
# now: the sentence and status 5.
. "$LIB"
for command in "config show" "config show --json" "doctor" "cost"; do
  status=0; holdfast $command > /dev/full 2> "$SAID" || status=$?
  [ "$status" = 5 ] || fail "status $status: $command"
  [ "$(wc -l < "$SAID")" = 1 ] || fail "more than one line: $command"
done
