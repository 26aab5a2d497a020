# When did it happen, in the time of the user?
# before: UTC everywhere, without a zone in `logs`.
# now: local time, with the zone.
. "$LIB"
export TZ=XYZ-5
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
for command in "logs one" "show one" "brief"; do
  ends 0 holdfast $command
  shows "$(date +%F)" "XYZ"
  hides "UTC"
done
