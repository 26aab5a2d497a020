"""What the next request takes in of what came from outside: all of it, or the oldest that fit under the line (S3)."""

from __future__ import annotations

from holdfast.session.state import Call, PostedItem, State


def real(state: State, estimated: int) -> int:
    """An estimate, corrected by what earlier requests really had."""
    return estimated * state.context.scale_milli // 1_000


def line_tokens(state: State) -> int:
    """Where the context is renewed: the line of its policy, that at which the session parks, or what a model took."""
    line = min(state.limits.context.line_tokens, state.limits.context_tokens)
    return min(line, state.context.learned_tokens) if state.context.learned_tokens else line


def inputs(state: State) -> list[PostedItem]:
    """The pending messages that the next request takes in, in order; the others wait for the request after it.

    When all of them together would park the session, as many as fit are taken; at least one when everything before has
    been answered.
    """
    most = state.limits.context_tokens
    if real(state, state.window_tokens + sum(item.tokens for item in state.pending)) <= most:
        return state.pending
    line = most if state.limits.context.strategy == "off" else line_tokens(state)
    tokens, taken = state.window_tokens, list[PostedItem]()
    least = 0 if state.window and isinstance(state.window[-1], PostedItem) else 1
    for item in state.pending:
        tokens += item.tokens
        if len(taken) >= least and real(state, tokens) > line:
            break
        taken.append(item)
    return taken


def inputs_through(state: State) -> int:
    """The last position that the next request shows."""
    taken = len(inputs(state))
    return state.seq if taken == len(state.pending) else state.pending[taken].seq - 1


def left_over(state: State, call: Call) -> bool:
    """Whether the request that a call comes from could not take in all messages: none waits while they do."""
    request_seq = int(call.call_id.partition(".")[0])
    return any(item.seq < request_seq for item in state.pending)


def arrived(state: State, call: Call) -> bool:
    """Whether a call that waits has to end for something that came in."""
    return left_over(state, call) or any(item.seq > call.seq for item in state.pending)
