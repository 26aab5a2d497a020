"""Ralph loops: any command, run again for one item of a list at a time, with checks that the harness runs itself."""
