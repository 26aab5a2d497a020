"""What every way outside must show."""

from __future__ import annotations

from holdfast.facts.session import EgressPolicy
from holdfast.testing.egress.rig import SECRETS, Check, Rig, at, use_of, variable_of

ONE, OTHER = "ses_kit_one", "ses_kit_other"


async def what_is_not_listed_is_refused(rig: Rig) -> None:
    """An exact host and port are let through, the others are not."""
    first, second = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    assert await rig.request(gateway, first) == "allowed"
    assert await rig.request(gateway, second) == "refused"
    assert await rig.request(gateway, first._replace(port=first.port + 1)) == "refused"


async def opening_again_finds_the_living_one(rig: Rig) -> None:
    """The same proxy, under the policy of the latest opening."""
    first, second = rig.places
    before = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    again = await rig.egress.open(ONE, EgressPolicy(allow=(at(second),)), uid=rig.uid)
    assert (again.socket, again.port) == (before.socket, before.port)
    assert await rig.request(before, first) == "refused"
    assert await rig.request(before, second) == "allowed"


async def a_change_holds_at_once(rig: Rig) -> None:
    """For the next request, in both directions."""
    first, _ = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(), uid=rig.uid)
    assert await rig.request(gateway, first) == "refused"
    await rig.egress.change(ONE, EgressPolicy(allow=(at(first),)))
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.change(ONE, EgressPolicy())
    assert await rig.request(gateway, first) == "refused"


async def a_change_without_a_proxy_is_nothing(rig: Rig) -> None:
    """It neither fails nor starts one."""
    await rig.egress.change(ONE, EgressPolicy(allow=(at(rig.places[0]),)))
    assert (await rig.egress.notes(ONE, 0)).through == 0


async def secrets_are_held_one_by_one(rig: Rig) -> None:
    """A held secret is not used, another one is; and a request without any passes."""
    first, _ = rig.places
    alpha, beta = (use_of(name, first) for name in SECRETS)
    policy = EgressPolicy(allow=(at(first),), secrets=(alpha, beta))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid, held=(alpha.name,))
    assert await rig.request(gateway, first, gateway.env[variable_of(alpha.name)]) == "held"
    assert await rig.request(gateway, first, gateway.env[variable_of(beta.name)]) == "allowed"
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.change(ONE, policy, held=(beta.name,))
    assert await rig.request(gateway, first, gateway.env[variable_of(alpha.name)]) == "allowed"
    assert await rig.request(gateway, first, gateway.env[variable_of(beta.name)]) == "held"
    held = [seen for seen in (await rig.egress.notes(ONE, 0)).seen if seen.verdict == "held"]
    assert {seen.secret for seen in held} == set(SECRETS)
    assert all((seen.host, seen.port, seen.method) == (*first, "GET") for seen in held)


async def whoever_is_wary_holds_secrets_once_strangers_were_read(rig: Rig) -> None:
    """At once, without a word from outside; and for good."""
    first, second = rig.places
    policy = EgressPolicy(allow=(at(second),), secrets=(use_of(SECRETS[0], first),))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid, wary=True)
    placeholder = gateway.env[variable_of(SECRETS[0])]
    assert await rig.request(gateway, second) == "allowed"
    assert await rig.request(gateway, first, placeholder) == "held"
    await rig.egress.change(ONE, policy, wary=True)
    assert await rig.request(gateway, first, placeholder) == "held"
    await rig.egress.change(ONE, policy)
    assert await rig.request(gateway, first, placeholder) == "allowed"


async def a_secret_goes_nowhere_else(rig: Rig) -> None:
    """Not to an allowed host that it is not bound to, and its value is nowhere inside."""
    first, second = rig.places
    policy = EgressPolicy(allow=(at(first), at(second)), secrets=tuple(use_of(name, first) for name in SECRETS))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid)
    placeholder = gateway.env[variable_of(SECRETS[0])]
    assert await rig.request(gateway, first, placeholder) == "allowed"
    assert await rig.request(gateway, second, placeholder) != "held"
    told = (*gateway.env.values(), *(body.decode("latin-1") for body in gateway.files.values()), repr(gateway))
    assert not any(value in text for value in rig.values for text in told)
    notes = repr(await rig.egress.notes(ONE, 0))
    assert not any(value in notes for value in rig.values)


async def notes_say_what_became_of_requests(rig: Rig) -> None:
    """Each request is counted once, and only those after the position that is asked for."""
    first, second = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    for _ in range(3):
        assert await rig.request(gateway, first) == "allowed"
    assert await rig.request(gateway, second) == "refused"
    notes = await rig.egress.notes(ONE, 0)
    counts = {
        (verdict, place): sum(
            seen.count for seen in notes.seen if seen.verdict == verdict and (seen.host, seen.port) == place
        )
        for verdict in ("allowed", "refused", "held")
        for place in rig.places
    }
    assert counts[("allowed", first)] == 3
    assert counts[("refused", second)] == 1
    assert sum(counts.values()) == 4
    assert all(seen.reason for seen in notes.seen if seen.verdict == "refused")
    after = await rig.egress.notes(ONE, notes.through)
    assert (after.through, after.seen) == (notes.through, ())
    await rig.request(gateway, second)
    later = await rig.egress.notes(ONE, notes.through)
    assert later.through > notes.through
    assert [(seen.verdict, seen.count) for seen in later.seen] == [("refused", 1)]


async def notes_outlive_the_proxy(rig: Rig) -> None:
    """They are there after its end, go on with the next one, and are gone when the session is forgotten."""
    first, _ = rig.places
    policy = EgressPolicy(allow=(at(first),))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid)
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.close(ONE)
    before = await rig.egress.notes(ONE, 0)
    assert [(seen.verdict, seen.host) for seen in before.seen] == [("allowed", first.host)]
    assert await rig.request(await rig.egress.open(ONE, policy, uid=rig.uid), first) == "allowed"
    await rig.egress.close(ONE)  # what is still under way is noted by its end
    assert sum(seen.count for seen in (await rig.egress.notes(ONE, before.through)).seen) == 1
    await rig.egress.forget(ONE)
    assert (await rig.egress.notes(ONE, 0)).seen == ()


async def nobody_answers_after_its_end(rig: Rig) -> None:
    """And ending twice is ending once."""
    first, _ = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    await rig.egress.close(ONE)
    await rig.egress.close(ONE)
    assert await rig.request(gateway, first) == "unreachable"
    await rig.egress.forget(ONE)
    await rig.egress.forget(ONE)


async def sessions_share_nothing(rig: Rig) -> None:
    """Neither a policy, nor a placeholder, nor a journal."""
    first, _ = rig.places
    policy = EgressPolicy(allow=(at(first),), secrets=(use_of(SECRETS[0], first),))
    mine = await rig.egress.open(ONE, policy, uid=rig.uid)
    other = await rig.egress.open(OTHER, EgressPolicy(), uid=rig.uid)
    assert mine.socket != other.socket
    assert await rig.request(mine, first) == "allowed"
    assert await rig.request(other, first) == "refused"
    await rig.egress.change(OTHER, policy)
    assert await rig.request(other, first, mine.env[variable_of(SECRETS[0])]) == "refused"
    await rig.egress.close(OTHER)
    assert await rig.request(mine, first) == "allowed"


ALL: tuple[Check, ...] = (
    what_is_not_listed_is_refused,
    opening_again_finds_the_living_one,
    a_change_holds_at_once,
    a_change_without_a_proxy_is_nothing,
    secrets_are_held_one_by_one,
    whoever_is_wary_holds_secrets_once_strangers_were_read,
    a_secret_goes_nowhere_else,
    notes_say_what_became_of_requests,
    notes_outlive_the_proxy,
    nobody_answers_after_its_end,
    sessions_share_nothing,
)
