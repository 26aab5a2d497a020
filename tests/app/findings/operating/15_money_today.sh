# How much today, for which model, and a cap for everything.
# before: `budget` listed raw ids without a total, by day or by model; no cap held for the whole home.
# now: `cost` adds up, `budget` names sessions, and `budget --all` caps the home.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
ends 0 holdfast cost
shows "$(date -u +%F)" "total"
ends 0 holdfast cost --by model
shows "scripted:"
ends 0 holdfast budget
shows "one total"
hides "ses_"
ends 2 holdfast budget --set 5
shows "holdfast budget --all --day 20"
ends 0 holdfast budget --all --day 20
shows "home:all" "day \$20.00"
