"""Every attempt that any sandbox for agents is known to have been tried with, and where it is tried here.

`HERE` names attempts of `attacks`, `attacks_own` and `attacks_pair` by their numbers; `ELSEWHERE` has the tests that
try what those cannot, as `file::test` below `tests`. Attempts on the proxy (73 to 108) are in `tests/egress`.
"""

from __future__ import annotations

ALL = {
    1: "write outside the workspace", 2: "write a login file", 3: "read a key", 4: "a secret in the environment",
    5: "another's environment", 6: "another's command line", 7: "signal the host", 8: "trace a child",
    9: "trace the host", 10: "the host's loopback", 11: "an abstract socket", 12: "a socket file", 13: "out by TCP",
    14: "out by datagram", 15: "a raw socket", 16: "packets", 17: "vsock", 18: "kernel crypto",
    19: "a nested user namespace", 20: "mount", 21: "remount", 22: "unmount what masks", 23: "chroot",
    24: "make a device", 25: "open a device", 26: "new privileges", 27: "capabilities", 28: "a set-user file",
    29: "a link to the outside", 30: "a second name of a file outside", 31: "pivot through a root link",
    32: "settings of the kernel", 33: "groups and their release agent", 34: "open by handle", 35: "bpf", 36: "io_uring",
    37: "userfaultfd", 38: "perf", 39: "keyrings", 40: "type into a terminal", 41: "inherited descriptors",
    42: "processes of the host", 43: "fork bomb", 44: "memory bomb", 45: "fill the workspace",
    46: "fill the scratch folders", 47: "a git hook", 48: "enter a namespace", 49: "become root", 50: "a daemon",
    51: "service sockets", 52: "the shadow file", 53: "the launcher's environment", 54: "core pattern and its like",
    55: "vsock to 1, 2, 3", 56: "a protected file that was not there", 57: "links that come while the host looks",
    58: "what git on the host would run", 59: "files that a judge on the host would run",
    60: "output that forges, escapes or never ends", 61: "write to the agent's channel", 62: "kill or stop the agent",
    63: "memory of agent and bridge", 64: "a child that holds the output", 65: "get away from a time limit",
    66: "a fork bomb during a kill", 67: "memory in many small processes", 68: "inodes, many files, deep folders",
    69: "clock, name, queues, shared memory", 70: "two sessions at each other", 71: "services of the host",
    72: "the proxy's socket", 109: "a secret in whatever is kept", 110: "no sandbox to be had",
    111: "the model asks for none", 112: "a brain killed in the middle", 113: "a hostile tar",
    114: "a set-user file on the host",
}  # fmt: skip
"""Number → what is tried."""

ELSEWHERE: dict[int, tuple[str, ...]] = {
    44: ("hands/test_limits.py::test_bombs_go_off_inside_alone",),
    45: ("hands/test_limits.py::test_bombs_go_off_inside_alone",),
    52: ("hands/test_attacks_host.py::test_a_root_that_may_not_become_another_makes_no_hands",),
    56: (
        "hands/test_attacks_host.py::test_settings_that_a_command_plants_open_nothing",
        "hands/test_attacks_links.py::test_rules_that_become_a_link_at_any_moment",
        "hands/test_providers.py::test_git_is_looked_at_and_not_touched",
    ),
    57: (
        "hands/test_attacks_host.py::test_a_write_ends_where_it_may_whatever_becomes_of_the_path",
        "hands/test_attacks_links.py::test_a_place_for_a_mount_is_never_made_through_a_link",
        "hands/test_attacks_links.py::test_a_place_that_becomes_a_link_at_any_moment",
        "hands/test_attacks_links.py::test_output_is_never_read_through_a_link",
        "hands/test_attacks_links.py::test_rules_of_a_project_are_never_read_through_a_link",
        "hands/test_attacks_links.py::test_no_link_that_packages_leave_is_laid",
        "hands/test_layers.py::test_a_link_in_the_way_keeps_a_layer_out",
        "repo/attacks.py::a_folder_that_becomes_a_link_meanwhile",
    ),
    58: (
        "hands/test_attacks_host.py::test_a_repository_that_git_is_pointed_to_is_kept_from_commands",
        "hands/test_attacks_host.py::test_a_repository_that_could_be_moved_away_is_refused",
        "repo/attacks.py::configuration_of_git",
        "repo/attacks.py::submodules_and_repositories_inside",
    ),
    59: ("repo/attacks.py::configuration_of_git",),
    60: (
        "hands/test_exec.py::test_no_output_can_forge_a_result",
        "hands/test_exec.py::test_a_line_of_a_gigabyte_is_survived",
        "hands/test_exec.py::test_odd_bytes",
    ),
    62: (
        "hands/test_exec.py::test_ending_the_runner_from_inside_ends_the_call",
        "hands/test_attacks_host.py::test_who_stops_its_keeper_is_ended_nevertheless",
        "hands/test_attacks_host.py::test_who_stops_its_keeper_gets_no_more_of_the_disk",
        "hands/test_attacks_host.py::test_who_stops_everything_holds_no_brain_up",
    ),
    64: (
        "hands/test_exec.py::test_a_child_that_holds_the_pipe_does_not_hold_the_call",
        "hands/test_streams.py::test_input_that_is_not_read_has_a_bound",
    ),
    65: (
        "hands/test_exec.py::test_a_time_limit_ends_the_whole_tree",
        "hands/test_limits.py::test_bombs_go_off_inside_alone",
    ),
    66: ("hands/test_exec.py::test_a_fork_bomb_dies_with_its_call",),
    67: (
        "hands/test_limits.py::test_bombs_go_off_inside_alone",
        "hands/test_limits.py::test_bombs_go_off_inside_alone_for_an_ordinary_user",
    ),
    68: (
        "hands/test_limits.py::test_bombs_go_off_inside_alone",
        "hands/test_limits.py::test_large_bombs",
        "hands/test_limits.py::test_a_session_does_not_get_its_disk_anew_with_new_hands",
    ),
    109: (
        "vault/test_hygiene.py::test_no_value_is_anywhere",
        "canary/test_canary.py::test_nothing_gets_out_of_a_worker_that_obeys",
    ),
    110: (
        "hands/test_providers.py::test_without_bubblewrap",
        "hands/test_providers.py::test_closed_user_namespaces_are_refused_with_the_way_out",
        "hands/test_providers.py::test_each_refusal_of_the_kernel_has_its_fix",
        "hands/test_providers.py::test_a_root_that_can_become_nobody_is_refused",
        "hands/test_attacks_host.py::test_a_root_that_may_not_become_another_makes_no_hands",
    ),
    111: ("hands/test_attacks_host.py::test_no_tool_has_a_word_for_less_isolation",),
    112: (
        "hands/test_supervisor.py::test_a_dead_brain_costs_no_result",
        "hands/test_supervisor.py::test_sigkill_in_the_middle_of_a_call",
    ),
    113: (
        "hands/test_verbs.py::test_nothing_is_written_through_a_link",
        "hands/test_verbs.py::test_no_right_is_lent",
        "hands/test_providers_far.py::test_a_hostile_tar_changes_nothing",
    ),
    114: (
        "hands/test_verbs.py::test_no_right_is_lent",
        "repo/attacks.py::modes",
    ),
}
"""Number → the tests that try it, or the rest of it."""
