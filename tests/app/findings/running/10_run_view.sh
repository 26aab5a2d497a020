# Watch a run at 80 columns: what does the agent say, do, and get?
# before: half of each line was repeated counters, the words were cut, and no output was shown.
# now: the whole sentence, the command, and its output.
. "$LIB"
text="The test fails because add subtracts, so I will mend the function and then run the tests once more."
model "{\"text\": \"$text\", \"tool_calls\": [{\"name\": \"bash\", \"input\": {\"command\": \"echo 12 passed\"}}]}" "$(says Done.)"
ends 0 on_terminal 80 -- holdfast run "Mend it." --scratch --model scripted:m.json --no-sandbox --plain
shows "$text" "echo 12 passed" "12 passed"
hides "0.0k tok"
