"""Small files between stages, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pipeline.errors import DataError


def write_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def read_json(path: Path, made_by: str) -> Any:
    """Read a JSON file of another stage. Raises DataError when it is missing (naming that stage) or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: expected a file, but there is none; the stage {made_by!r} makes it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected JSON, but it can't be read: {error}") from None


def md5(path: Path) -> str:
    """MD5 of a file's bytes: the hash under which DVC knows it."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
