"""A settings file as text to which entries are added: its other settings and all comments stay."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.errors import DataError, SettingsError


class SettingsText:
    """A file's settings to change: `data` by key. Raises SettingsError if it can't be read."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        from ruamel.yaml import YAML  # slow to import

        self.path = path
        try:
            self.before = path.read_bytes().decode() if text is None else text
            self._yaml = YAML()
            self._yaml.width = 10**6
            self._yaml.preserve_quotes = True
            self.data = self._yaml.load(self.before)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
            raise SettingsError(f"{path}: can't be read: {error}") from None

    def add(self, section: str, name: str, entry: Mapping[str, Any], lines: bool = False) -> None:
        """Put an entry at a section's end, on one line or a key a line. Raises SettingsError when
        the section has its name already.
        """
        from ruamel.yaml.error import CommentMark
        from ruamel.yaml.tokens import CommentToken

        held = self.data[section]
        if name in held:
            raise SettingsError(
                f"{self.path}: {section} has {name!r} already; choose another --name, or remove"
                " that entry first"
            )
        at = _last(held) if held else (self.data, section)
        below = _cut_comment(*at)
        if not held:
            held.fa.set_block_style()
        held[name] = self.node(entry, lines)
        if below:
            node, key = _last(held)
            node.ca.items[key] = [None, None, CommentToken(f"\n{below}", CommentMark(0)), None]

    def node(self, entry: Mapping[str, Any], lines: bool = False) -> Any:
        """Data to be put among the file's, on one line or a key a line."""
        texts = [f"{_flow(key)}: {_flow(value)}\n" for key, value in entry.items()]
        return self._yaml.load("".join(texts) if lines else _flow(dict(entry)))

    @property
    def text(self) -> str:
        """The file's new text. Raises SettingsError where YAML can't say it so."""
        made = io.StringIO()
        self._yaml.dump(self.data, made)
        text = made.getvalue()
        return text.replace("\n", "\r\n") if "\r\n" in self.before else text

    @property
    def plain(self) -> dict[str, Any]:
        """The settings that the new text has."""
        found: dict[str, Any] = yaml.safe_load(self.text)
        return found

    def require_unchanged(self) -> None:
        """Raises DataError when the file has changed meanwhile."""
        if self.path.exists() and self.path.read_bytes().decode() != self.before:
            raise DataError(
                f"{self.path}: changed while this ran; nothing was written, start again"
            )


def _last(node: Any) -> tuple[Any, Any]:
    """The innermost block at the end of a block, and the key of its last value."""
    while True:
        key = len(node) - 1 if isinstance(node, list) else list(node)[-1]
        inner = node[key]
        form = getattr(inner, "fa", None)  # of a map or a list
        if form is None or not inner or form.flow_style():
            return node, key
        node = inner


def _cut_comment(node: Any, key: Any) -> str:
    """Take the lines below a value that belong to what follows; the comment on its line stays."""
    token = (node.ca.items.get(key) or [None] * 3)[2]
    if token is None:
        return ""
    token.value, _, below = token.value.partition("\n")
    token.value += "\n"
    return str(below)


def _flow(value: Any) -> str:
    """A value as YAML on one line; letters as they are, unless one is a line break to YAML."""
    texts = (
        yaml.safe_dump(
            [value], default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=plain
        ).strip()[1:-1]
        for plain in (True, False)
    )
    return next((text for text in texts if yaml.safe_load(f"[{text}]") == [value]), repr(value))
