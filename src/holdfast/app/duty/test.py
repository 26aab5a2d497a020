"""`holdfast duty test`: what changed rules would have decided over the recorded calls of a duty."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app.call import Call, positive
from holdfast.app.compose import open_runtime
from holdfast.app.duty.steer import named
from holdfast.app.settings.duty_file import check_duty, read_duty_file
from holdfast.app.wrap import table
from holdfast.clock import SystemClock
from holdfast.facts.session import SessionCreated
from holdfast.kinds.duty.firing import rules_of
from holdfast.service import duties
from holdfast.service.duties.rule_replay import replay_rules
from holdfast.service.event_lines import counted, one_line
from holdfast.service.opening import state_of


def test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty test`."""
    named(parser)
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="A duty.toml with the changed rules (default: as added)"
    )
    parser.add_argument(
        "--replay", metavar="N", type=positive, default=10, help="Number of firings to judge again (default: 10)"
    )


async def test(call: Call) -> int:
    """Judge the recorded calls of the last firings again."""
    args = call.args
    async with open_runtime(call.settings) as runtime:
        row = await duties.find_duty(runtime.store, args.name)
        state = await state_of(runtime.site, row)
        own = await duties.state_of_duty(runtime.store, runtime.store, runtime.kinds, row)
        assert isinstance(state.created, SessionCreated)
        duty = own.duty
        if args.file:
            duty = check_duty(read_duty_file(Path(args.file))[1], args.file, SystemClock().now_us())
        rules = rules_of(state.created.agent.rules, duty)
        judged = await replay_rules(runtime.store, runtime.kinds, row, rules, args.replay)
    if call.json:
        for each in judged:
            call.emit(msgspec.to_builtins(each))
        return 0
    changed = [each for each in judged if each.before != each.after]
    if changed:
        lines = [("FIRING", "TOOL", "WAS", "IS", "RULE", "ARGUMENT")]
        for each in changed:
            rule = each.rule
            named = one_line(f"{rule.decision} {rule.tool} {rule.match}".strip(), 40) if rule is not None else "-"
            lines.append((str(each.firing), each.tool, each.before, each.after, named, one_line(each.argument, 60)))
        for line in table(lines, (0,)):
            call.say(line)
    call.say(f"{counted(len(judged), 'recorded call')} judged again, {len(changed)} decided otherwise")
    return 0
