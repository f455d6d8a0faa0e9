"""Editor of a settings file's text: adds entries, and keeps all other settings and all comments. A
comment at the end of a section stays where it is, above the new entry.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.errors import DataError, SettingsError


class SettingsText:
    """Settings of a file, for editing; `data` has them as nested mappings. Raises SettingsError if
    the file can't be read.
    """

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
            raise SettingsError(
                f"{path}: expected settings in YAML, but they can't be read: {error}"
            ) from None

    def add(self, section: str, name: str, entry: Mapping[str, Any]) -> None:
        """Append an entry to a section, with one key per line. Raises SettingsError if the section
        already has the name.
        """
        self.require_free(section, name)
        held = self.data[section]
        if not held:
            held.fa.set_block_style()
        held[name] = self.node(entry)

    def require_free(self, section: str, name: str) -> None:
        """Raise SettingsError if a section already has the name."""
        if name in self.data[section]:
            raise SettingsError(
                f"{self.path}: expected a new name, not {name!r}, which is in {section}; use --name"
            )

    def node(self, entry: Mapping[str, Any]) -> Any:
        """Return an entry as a YAML node, which is written with one key per line."""
        lines = (f"{_flow(key)}: {_flow(value)}\n" for key, value in entry.items())
        return self._yaml.load("".join(lines))

    @property
    def text(self) -> str:
        """New text of the file."""
        made = io.StringIO()
        self._yaml.dump(self.data, made)
        text = made.getvalue()
        return text.replace("\n", "\r\n") if "\r\n" in self.before else text

    @property
    def plain(self) -> dict[str, Any]:
        """Settings in the new text, as plain data."""
        found: dict[str, Any] = yaml.safe_load(self.text)
        return found

    def require_unchanged(self) -> None:
        """Raise DataError if the file has changed in the meantime."""
        if self.path.exists() and self.path.read_bytes().decode() != self.before:
            raise DataError(
                f"{self.path}: it changed meanwhile, so nothing was written; run the command again"
            )


class _Dumper(yaml.SafeDumper):
    """PyYAML dumper that also quotes strings that ruamel.yaml would misread as numbers (`-_`) or as
    several lines.
    """

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if re.fullmatch("[A-Za-z][ -~]*", data) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    dumped = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        width=10**6,
        allow_unicode=True,
    )
    return str(dumped).strip()[1:-1]
