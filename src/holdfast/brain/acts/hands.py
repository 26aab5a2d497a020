"""Making, fencing and giving back hands."""

from __future__ import annotations

import anyio

from holdfast.brain.shift import Shift
from holdfast.errors import HandsError, HandsLost
from holdfast.facts.hands import HandsLost as HandsLostFact
from holdfast.facts.hands import HandsReleased
from holdfast.hands.base import Hands, HandsSpec
from holdfast.ids import new_hands_id


def begin_provisioning(shift: Shift) -> None:
    """Start making hands beside whatever else goes on, unless there are some or they are being made."""
    if shift.state.hands is None and shift.provisioned is None:
        shift.provisioned = anyio.Event()
        shift.background.start_soon(_provision, shift)


async def provision(shift: Shift) -> None:
    """Have hands when this returns. Raises `SandboxUnavailable` or `HandsError`."""
    begin_provisioning(shift)
    if shift.provisioned is not None:
        await shift.provisioned.wait()
    error, shift.provision_error = shift.provision_error, None
    if error is not None:
        shift.provisioned = None
        raise error


async def _provision(shift: Shift) -> None:
    assert shift.provisioned is not None
    assert shift.state.created is not None
    done = shift.provisioned
    hands: Hands | None = None
    try:
        workspace = shift.state.created.workspace
        spec = HandsSpec(
            session_id=shift.state.session_id,
            hands_id=new_hands_id(shift.doors.clock.now_us(), shift.doors.entropy),
            workspace=workspace,
            read_only=workspace.read_only,
            env=workspace.env,
        )
        hands = await shift.doors.hands.provision(spec, shift.epoch)
        await shift.fact(hands.identity)
        shift.hands = hands
        shift.provisioned = None
    except Exception as error:  # handed to whoever waits for the hands
        shift.provision_error = error
        if hands is not None:
            await hands.release(shift.epoch)
    finally:
        done.set()


async def fence(shift: Shift) -> None:
    """At the start of a shift: shut out every earlier brain at the hands (S9), or find them gone."""
    identity = shift.state.hands
    if identity is None:
        return
    hands = await shift.doors.hands.attach(identity)
    try:
        await hands.fence(shift.epoch)
        shift.hands = hands
    except HandsLost as lost:
        await shift.fact(HandsLostFact(hands_id=identity.hands_id, reason=str(lost)))


async def current(shift: Shift) -> Hands:
    """The live hands of the session. Raises `HandsLost` when the state has none."""
    identity = shift.state.hands
    if identity is None:
        raise HandsLost("the session has no hands")
    if shift.hands is None or shift.hands.identity.hands_id != identity.hands_id:
        shift.hands = await shift.doors.hands.attach(identity)
    return shift.hands


async def lost(shift: Shift, hands_id: str, reason: str) -> None:
    """Record that hands are gone, once."""
    shift.hands = None
    if shift.state.hands is not None and shift.state.hands.hands_id == hands_id:
        await shift.fact(HandsLostFact(hands_id=hands_id, reason=reason))


async def give_back(shift: Shift) -> None:
    """Release the hands, if there are any: a parked or finished session holds no process."""
    if shift.provisioned is not None:
        await shift.provisioned.wait()
        shift.provisioned = shift.provision_error = None
    identity = shift.state.hands
    if identity is None:
        return
    hands = await current(shift)
    shift.hands = None
    try:
        await hands.release(shift.epoch)
        await shift.fact(HandsReleased(hands_id=identity.hands_id))
    except HandsLost as gone:
        await shift.fact(HandsLostFact(hands_id=identity.hands_id, reason=str(gone)))
    except HandsError as stuck:
        await shift.fact(HandsLostFact(hands_id=identity.hands_id, reason=f"not released: {stuck}"))
