# What did a plain session do?
# before: "Not done: nothing; done", no files, no last words, the long id three times.
# now: its last words, the files that changed, and its cost; nothing else.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says "There is a note now.")"
ends 0 holdfast run "Write a note." --scratch --model scripted:m.json --session-id fix --no-sandbox
ends 0 holdfast brief fix
shows "# fix: done after" "last words: There is a note now." "files changed: 1" "note.txt" "## Cost"
hides "Not done"
ends 0 holdfast brief
shows "this is your first brief" "fix"
hides "you have not asked before"
