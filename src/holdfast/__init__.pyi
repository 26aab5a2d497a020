"""The public names for type checkers; `__init__.py` loads them when they are asked for."""

from holdfast.app.python.agent import Agent as Agent
from holdfast.app.python.client import Holdfast as Holdfast
from holdfast.app.python.client import open as open
from holdfast.app.python.drive import Stream as Stream
from holdfast.app.python.signatures import ToolContext as ToolContext
from holdfast.app.python.sync import run_sync as run_sync
from holdfast.app.python.tools import Tool as Tool
from holdfast.app.python.tools import tool as tool
from holdfast.app.python.types import Brief as Brief
from holdfast.app.python.types import Delta as Delta
from holdfast.app.python.types import Item as Item
from holdfast.app.python.types import Result as Result
from holdfast.app.python.types import Session as Session
from holdfast.app.python.types import Spending as Spending
from holdfast.errors import CannotRunSafely as CannotRunSafely
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.errors import ItemClosed as ItemClosed
from holdfast.errors import UnknownSession as UnknownSession
from holdfast.errors import UsageError as UsageError
from holdfast.facts.base import Document as Document
from holdfast.facts.base import Image as Image
from holdfast.facts.codec import Event as Event
from holdfast.facts.session import Rule as Rule

__version__: str
__all__: list[str]
