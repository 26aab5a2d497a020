"""Accounts from leaf to root, moved by facts, checked before a reservation is held (S15).

Pure: it reads accounts through a function and keeps what changed, for the store to write.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from holdfast.errors import BudgetRefused, UsageError
from holdfast.session.money import Move, OpenAccount, Reserve, SetCap, Settle, usd
from holdfast.session.rows import AccountRow

_LARGEST_PICO = 2**62
"""What fits a 64-bit column with room to add: about four million dollars."""


class Books(Protocol):
    """The accounts and reservations as stored."""

    def account(self, account_id: str) -> AccountRow | None:
        """One account."""
        ...

    def reservation(self, session_id: str, request_seq: int) -> int | None:
        """What an open request holds, in pico-dollars."""
        ...


class Ledger:
    """The books with the moves of one transaction on top. `accounts` and `reservations` are the changes;
    a reservation of None is gone.
    """

    __slots__ = ("_books", "accounts", "reservations")

    def __init__(self, books: Books) -> None:
        self._books = books
        self.accounts: dict[str, AccountRow] = {}
        self.reservations: dict[tuple[str, int], int | None] = {}

    def apply(self, session_id: str, move: Move) -> None:
        """Move money, or raise `BudgetRefused`; the whole transaction is then given up."""
        match move:
            case OpenAccount():
                self._open(move)
            case SetCap():
                account = self._need(move.account_id)
                self._keep(replace(account, cap_pico=_amount(move.cap_pico)))
            case Reserve():
                self._reserve(session_id, move)
            case Settle():
                self._settle(session_id, move)

    def _open(self, move: OpenAccount) -> None:
        if self._find(move.account_id) is not None:
            raise UsageError(f"there is an account named {move.account_id!r} already; give the new session its own")
        cap = None if move.cap_pico is None else _amount(move.cap_pico)
        self._keep(AccountRow(move.account_id, cap, 0, 0))

    def _reserve(self, session_id: str, move: Reserve) -> None:
        amount = _amount(move.amount_pico)
        for account in map(self._need, move.path):
            if account.cap_pico is None:
                continue
            left = account.cap_pico - account.spent_pico - account.reserved_pico
            if amount > left:
                raise BudgetRefused(
                    f"{usd(amount)} does not fit: account {account.account_id} has {usd(max(left, 0))} left of "
                    f"{usd(account.cap_pico)}; raise the budget with `holdfast budget`",
                    account_id=account.account_id,
                    left_pico=left,
                )
        for account in map(self._need, move.path):
            self._keep(replace(account, reserved_pico=account.reserved_pico + amount))
        self.reservations[session_id, move.request_seq] = amount

    def _settle(self, session_id: str, move: Settle) -> None:
        key = (session_id, move.request_seq)
        held = self.reservations[key] if key in self.reservations else self._books.reservation(*key)
        cost = _amount(move.cost_pico)
        if held is None and not cost:
            return
        for account in map(self._need, move.path):
            self._keep(
                replace(
                    account,
                    reserved_pico=account.reserved_pico - (held or 0),
                    spent_pico=account.spent_pico + cost,
                )
            )
        if held is not None:
            self.reservations[key] = None

    def _find(self, account_id: str) -> AccountRow | None:
        return self.accounts.get(account_id) or self._books.account(account_id)

    def _need(self, account_id: str) -> AccountRow:
        account = self._find(account_id)
        if account is None:
            raise UsageError(f"there is no account named {account_id!r} on the path of this session")
        return account

    def _keep(self, account: AccountRow) -> None:
        self.accounts[account.account_id] = account


def _amount(pico: int) -> int:
    if not 0 <= pico <= _LARGEST_PICO:
        raise UsageError(f"{usd(pico)} is not an amount that the ledger can hold (from $0 to {usd(_LARGEST_PICO)})")
    return pico
