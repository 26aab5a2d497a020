# Free the space of finished sessions, and remove one.
# before: nothing could be removed; `rm` and `prune` were no commands.
# now: both work, ask before they delete what exists only here, and the log still verifies.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
ends 0 holdfast run "Write a note." --scratch --model scripted:m.json --session-id fix --no-sandbox
ends 0 holdfast prune --older-than 0.001 --dry-run
shows "would free" "workspaces made by Holdfast"
ends 0 holdfast prune --older-than 0.001
shows "freed"
ends 2 holdfast rm fix
shows "nothing was removed: add --yes"
ends 0 holdfast rm fix --yes
shows "removed fix"
ends 2 holdfast show fix
ends 0 holdfast verify
shows "all chains and rows verify"
