"""Parsing of plain data into frozen pydantic models, with errors described in one line."""

import difflib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.secrets import refuse_secrets

Settings = TypeVar("Settings")


class ClosedModel(BaseModel):
    """Frozen pydantic model that rejects unknown keys.

    A class variable is a constant that was a key in earlier versions. Bundles of these versions
    contain it, so it may be given with its value, and with no other. If it is `...`, the key has no
    effect any more, and may have any value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def constants(cls) -> dict[str, Any]:
        """Return the constants that were keys in earlier versions."""
        return {name: getattr(cls, name) for name in cls.__class_vars__}

    @model_validator(mode="before")
    @classmethod
    def _without_constants(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fixed = cls.constants()
        return {k: v for k, v in given.items() if k not in fixed or fixed[k] not in (v, ...)}


def load(kind: type[Settings], path: Path) -> Settings:
    """Return the settings in a YAML file.

    Raises SettingsError if the file can't be read, isn't valid or contains what looks like a
    secret. The message names the file and, if a key is at fault, the key.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: expected a settings file, but there is none; correct the path, or run this in"
            " a project's folder, which has params.yaml and profiles/"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise SettingsError(
            f"{path}: expected settings in YAML, but they can't be read:"
            f" {getattr(error, 'problem', error)}{where}"
        ) from None
    refuse_secrets(data, str(path))
    return parse(kind, data, str(path))


def parse(kind: type[Settings], data: Any, where: str) -> Settings:
    """Return plain data as settings.

    Raises SettingsError naming `where`, the key and the expected value if the data is invalid.
    """
    if not isinstance(data, Mapping):
        raise SettingsError(f"{where}: expected keys and values, found {type(data).__name__}")
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        raise SettingsError(f"{where}: {_one_line(kind, error)}") from None


def _one_line(kind: Any, error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key causes two errors, an unknown and a missing key. The unknown key helps more.
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    key = ".".join(str(part) for part in first["loc"]) or "top level"
    if first["type"] == "extra_forbidden":
        text = f"unknown key {key!r}{_suggestion(kind, first['loc'])}"
    elif first["type"] == "missing":
        text = f"missing key {key!r}"
    else:
        text = f"key {key!r}: {first['msg'].removeprefix('Value error, ')}"
        if not isinstance(first["input"], Mapping | BaseModel) and first["type"] != "value_error":
            text += f", found {first['input']!r}"
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def _suggestion(kind: Any, location: tuple[int | str, ...]) -> str:
    """Return ", did you mean ...?" with the closest key of all settings, or "" if none is close."""
    given = str(location[-1])  # it may be valid in another section
    keys = {name for model in sections(kind) for name in model.model_fields} - {given}
    close = difflib.get_close_matches(given, sorted(keys), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def sections(annotation: Any) -> set[type[BaseModel]]:
    """Return the pydantic models in a type annotation, such as one model, with all models nested in
    them.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        inner = [field.annotation for field in annotation.model_fields.values()]
        return {annotation}.union(*map(sections, inner))
    return set().union(*map(sections, typing.get_args(annotation)))
