"""A profile's text with one more entry in it: every other byte stays as it is. Own code, as YAML
libraries keep comments, but rewrap lines and respell numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.errors import DataError, InputError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.settings.profile import Profile

STEP = "  "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def require_name(name: str, what: str) -> None:
    """Raises InputError for a name that can't name a folder, a file or an MLflow experiment."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"expected {what} named with letters, digits, '.', '_' and '-' only, found {name!r}"
        )


class ProfileText:
    """profiles/<name>.yaml as text. Raises SettingsError when it can't be used as it is."""

    def __init__(self, name: str, folder: Path = Path("profiles")) -> None:
        self.path = (folder / f"{name}.yaml").resolve()
        self.shown = folder / f"{name}.yaml"
        try:
            self.text = self.path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.shown}: can't be read: {error}") from None
        self.data: dict[str, Any] = yaml.safe_load(self.text)

    def with_entry(
        self, section: str, name: str, entry: Mapping[str, Any], comments: Mapping[str, str]
    ) -> tuple[str, Profile]:
        """The text with `name` at the end of a section, below its `comments` by key ("": the
        entry's), and the settings it then has. Raises SettingsError when the name is there already,
        the section is no block, or the result no profile.
        """
        if name in (self.data[section] or {}):
            raise SettingsError(
                f"{self.shown}: {section} has {name!r} already; choose another name, or remove that"
                " entry first"
            )
        end = "\r\n" if "\r\n" in self.text else "\n"
        held, line, indent = self._opened(section)
        lines = held.splitlines(keepends=True)
        lines[line] = lines[line].rstrip("\r\n") + end
        made = [indent + text + end for text in entry_lines(name, entry, comments)]
        text = "".join([*lines[: line + 1], *made, *lines[line + 1 :]])
        whole = yaml.safe_load(text)
        if whole != self.data | {section: (self.data[section] or {}) | {name: entry}}:
            raise SettingsError(
                f"{self.shown}: {name!r} can't be added to {section} by itself; add it by hand:"
                f" {name}: {flow(entry)}"
            )
        refuse_secrets(whole, str(self.shown))
        return text, parse(Profile, whole, str(self.shown))

    def write(self, text: str) -> None:
        """Replace the old text. Raises DataError when the file has changed meanwhile."""
        if self.path.read_bytes().decode() != self.text:
            raise DataError(
                f"{self.shown}: changed while this ran; nothing was written, start again"
            )
        write_text(self.path, text)

    def _opened(self, section: str) -> tuple[str, int, str]:
        """The text, without the braces of an empty section; the section's last line, from 0 and
        without comments and blank lines below it; and its entries' indentation.
        """
        root = yaml.compose(self.text)
        assert isinstance(root, yaml.MappingNode)
        node = next(value for key, value in root.value if key.value == section)
        if isinstance(node, yaml.MappingNode) and not node.value:
            text = self.text[: node.start_mark.index].rstrip(" ") + self.text[node.end_mark.index :]
            return text, node.start_mark.line, STEP
        if not isinstance(node, yaml.MappingNode) or node.flow_style:
            raise SettingsError(
                f"{self.shown}: expected {section} as a block, one entry below the other; found it"
                " in braces"
            )
        indent = " " * node.value[0][0].start_mark.column
        last: yaml.Node = node
        while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
            last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
        line = int(last.end_mark.line)
        if isinstance(last, yaml.ScalarNode) and last.style in ("|", ">"):
            line -= last.end_mark.column == 0  # such a text ends before the next line
        return self.text, line, indent


def entry_lines(name: str, entry: Mapping[str, Any], comments: Mapping[str, str]) -> list[str]:
    """An entry as lines of YAML, not indented: a key a line, below its comment."""
    lines = [f"# {comments['']}"] if "" in comments else []
    lines.append(f"{flow(name)}:")
    for key, value in entry.items():
        if key in comments:
            lines.append(f"{STEP}# {comments[key]}")
        lines.append(f"{STEP}{key}: {flow(value)}")
    return lines


def flow(value: Any) -> str:
    """A value as YAML on one line; letters as they are, unless one is a line break to YAML."""
    texts = (
        yaml.safe_dump(
            [value], default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=plain
        ).strip()[1:-1]
        for plain in (True, False)
    )
    return next((text for text in texts if yaml.safe_load(f"[{text}]") == [value]), repr(value))
