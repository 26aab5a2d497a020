# Run under a service manager or in a container without HOME, or with an empty one.
# before: settings were written to, and read from, "~/.config" or "x/.config" in the project; `run` failed with a traceback file.
# now: the home directory of the user database, and without one a sentence.
. "$LIB"
model "$(says Done.)"
for home in "" relative; do
  HOME=$home ends 0 holdfast config show
  HOME=$home ends 0 holdfast run "One." --scratch --model scripted:m.json --no-sandbox
done
mkdir -p relative/.config/holdfast
echo "max_turns = 7" > relative/.config/holdfast/holdfast.toml
HOME=relative ends 0 holdfast config get max_turns
hides "relative" "7"
