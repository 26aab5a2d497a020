"""Files that stand in a workspace, attacked from inside the sandbox of whoever runs this: prints what changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from tests.hands.host_files_attack import spoilt

print(json.dumps(anyio.run(spoilt, Path(sys.argv[1]))))
