"""Reference of every setting, and a JSON schema for editors, both generated from the pydantic
models that read the files; a setting's meaning is written below its field.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import models_in, sections
from ttsgraph.settings.profile import Params, Profile
from ttsgraph.settings.task import FOUND_OUT

FILES: dict[str, type[BaseModel]] = {"params": Params, "profile": Profile}
NAMES = {"params": "params.yaml", "profile": "profiles/<name>.yaml"}
UNITS = {
    "_s": "seconds",
    "_gib": "GiB",
    "_bytes": "bytes",
    "tokens": "tokens",
    "max_model_len": "tokens",
    "_tflops": "TFLOP/s",
}
"""Units by the ending of a key."""

UNIT_OF = {"dollars": "$", "price": "$ per million tokens", "limit": "budget.metric's"}
USUAL = Path(__file__).with_name("usual.txt").read_text(encoding="utf-8")
"""Keys for users; every other key has a default that only experts change."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its path, type, default (if optional), unit (if any) and meaning."""

    key: str
    type: str
    default: str
    unit: str
    meaning: str


def settings_of(file: str) -> list[Setting]:
    """Return a file's (`params`, `profile`) keys by section, each once; `<name>` is the user's
    choice.
    """
    return list(_walk(FILES[file], "", {}))


def meaning(model: type[BaseModel], name: str) -> str:
    """Return a field's meaning on one line, or "". Pydantic's own option would parse files at each
    import.
    """
    text = _meanings(model).get(name) or model.model_fields[name].description
    is_kind = typing.get_origin(model.model_fields[name].annotation) is typing.Literal
    return text or ("which of these it is" if is_kind and name == "kind" else "")


@cache
def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below a model's fields, by name."""
    source = Path(sys.modules[model.__module__].__file__ or "").read_text(encoding="utf-8")
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == model.__name__)
    found = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                found[name] = " ".join(said.split())
    return found


def _walk(model: type[BaseModel], prefix: str, known: dict[type, str]) -> Iterator[Setting]:
    """Yield the keys below a prefix, except those that stages add.

    `known` maps sections to the keys where they are listed. A section of several kinds is named
    with each, so `kind` has no row.
    """
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if field.json_schema_extra == FOUND_OUT or key.endswith(").kind"):
            continue
        inner = list(models_in(field.annotation))
        elsewhere = {known[section].partition("(")[0] for section, _ in inner if section in known}
        text = meaning(model, name) + "".join(f"; keys as in `{place}`" for place in elsewhere)
        unit = UNIT_OF.get(name) or next((UNITS[end] for end in UNITS if name.endswith(end)), "")
        kinds = _kinds(section for section, _ in inner)
        yield Setting(key, _type(field.annotation) + kinds, _default(field), unit, text)
        for section, way in inner:
            if section not in known:
                known[section] = f"{key}{way}" + (f"({_kind(section)})" if kinds else "")
                yield from _walk(section, f"{known[section]}.", known)


def _kinds(several: Iterable[type[BaseModel]]) -> str:
    """Return the kinds of a section, selected by its `kind`, or "" if it has none."""
    kinds = [_kind(section) for section in several]
    return f" with kind: {', '.join(kinds)}" if len(kinds) > 1 and all(kinds) else ""


def _kind(section: type[BaseModel]) -> str:
    field = section.model_fields.get("kind")
    kinds = typing.get_args(field.annotation) if field is not None else ()
    return str(kinds[0]) if kinds else ""


def _type(annotation: Any) -> str:
    """Return a type in YAML's terms."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    parts = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            return _type(parts[0])
        case typing.Literal:
            return " or ".join(map(str, parts))
        case origin if origin is dict:
            return f"{_type(parts[1])} by name"
        case origin if origin is tuple:
            if parts[-1] is Ellipsis:
                return f"list of {_type(parts[0])}"
            return ", ".join(map(_type, parts))
        case typing.Union | types.UnionType:
            kinds = [_type(part) for part in parts if part is not types.NoneType]
            return " or ".join(dict.fromkeys(kinds))
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    words["Path"] = "path"
    return words.get(getattr(annotation, "__name__", ""), "anything")


def _default(field: FieldInfo) -> str:
    """Return a key's default as text; empty if the key is required."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "as below"
    return "empty" if value in ((), {}) else json.dumps(value, default=str)


def page() -> str:
    """Return the reference as Markdown."""
    usual = USUAL.split()
    lines = ["# Every setting", "", "Made from the code that reads the files."]
    for heading, wanted in (("What one sets", True), ("Expert settings", False)):
        lines += ["", f"## {heading}", "", "A key without a default has to be given."]
        for file, name in NAMES.items():
            lines += ["", f"### {name}", "", "| key | type | default | unit | meaning |"]
            lines.append("|---|---|---|---|---|")
            lines += [_row(s) for s in settings_of(file) if (s.key in usual) == wanted]
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default else ""
    cells = (f"`{setting.key}`", setting.type, default, setting.unit, setting.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def schema(file: str) -> dict[str, Any]:
    """Return the JSON schema of a file (`params` or `profile`), with the meaning of each key."""
    made = FILES[file].model_json_schema()
    for model in sections(FILES[file]):
        part = made if model is FILES[file] else made["$defs"].get(model.__name__, {})
        for name, field in part.get("properties", {}).items():
            field["description"] = meaning(model, name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def write_schemas(folder: Path) -> list[Path]:
    """Write the schema of each file; return their paths."""
    paths = []
    for file in FILES:
        paths.append(folder / f"{file}.json")
        write_text(paths[-1], json.dumps(schema(file), indent=1))
    return paths
