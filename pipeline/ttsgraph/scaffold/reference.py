"""The reference of every setting, and a JSON schema for editors, both from the pydantic models that
read the files; what a setting means stands below its field.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ttsgraph.base.files import write_text
from ttsgraph.settings.profile import Params, Profile

FILES: dict[str, type[BaseModel]] = {"params": Params, "profile": Profile}
NAMES = {"params": "params.yaml", "profile": "profiles/<name>.yaml"}
FIELD_UNITS = {
    "_s": "seconds",
    "_gib": "GiB",
    "_bytes": "bytes",
    "_tokens": "tokens",
    "_tflops": "TFLOP/s",
    "max_model_len": "tokens",
}
FIELD_UNITS |= {
    "dollars": "$",
    "tokens": "tokens",
    "price": "$ per million tokens",
    "limit": "budget.metric's",
    "half_s": "seconds",
}
NOT_COUNTED = ("insight_1", "insight_2", "insight_3", "accept_weaker")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: where it stands, what it takes, what it is if it is left out, its unit if it has
    one, and what it means.
    """

    key: str
    type: str
    default: str
    unit: str
    meaning: str


def settings_of(file: str) -> list[Setting]:
    """Every key of a file (`params` or `profile`), section by section; `<name>` stands for names
    that are yours.
    """
    return list(_walk(FILES[file], "", ()))


def meaning(model: type[BaseModel], name: str) -> str:
    """What a field means, on one line; empty where that is not said.

    Pydantic can take it from there itself, but then whenever a model is made, by parsing its file.
    """
    if typing.get_origin(model.model_fields[name].annotation) is typing.Literal and name == "kind":
        return _meanings(model).get(name, "which of these it is")
    return _meanings(model).get(name, "")


@cache
def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """The texts below a model's fields, by name."""
    source = Path(sys.modules[model.__module__].__file__ or "").read_text(encoding="utf-8")
    (body,) = (
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == model.__name__
    )
    found = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                found[name] = " ".join(said.split())
    return found


def sections(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and all models inside it."""
    found = {model}
    for field in model.model_fields.values():
        for inner, _ in _models(field.annotation):
            if inner not in found:
                found |= sections(inner)
    return found


def _walk(
    model: type[BaseModel], prefix: str, above: tuple[type[BaseModel], ...]
) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        yield Setting(
            key, _type(field.annotation), _default(field), _unit(name), meaning(model, name)
        )
        inner = list(_models(field.annotation))
        for section, way in inner:
            if section in above:
                continue
            kind = _kind(section) if len(inner) > 1 else ""
            yield from _walk(section, f"{key}{way}{kind}.", (*above, model))


def _models(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models in a type, each with how a key goes on to it: names of a mapping, places of a
    list.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
        return
    origin = typing.get_origin(annotation)
    way = ".<name>" if origin is dict else "[]" if origin is tuple else ""
    for part in typing.get_args(annotation):
        for model, more in _models(part):
            yield model, way + more


def _kind(model: type[BaseModel]) -> str:
    """Which of several sources a section is."""
    field = model.model_fields.get("kind")
    return f"({typing.get_args(field.annotation)[0]})" if field is not None else ""


def _type(annotation: Any) -> str:
    """A type in words of YAML."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    origin = typing.get_origin(annotation)
    parts = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(parts[0])
    if origin is typing.Literal:
        return " or ".join(map(str, parts))
    if origin is dict:
        return f"{_type(parts[1])} by name"
    if origin is tuple:
        return (
            f"list of {_type(parts[0])}" if parts[-1] is Ellipsis else ", ".join(map(_type, parts))
        )
    if origin in (typing.Union, types.UnionType):
        return " or ".join(
            dict.fromkeys(_type(part) for part in parts if part is not types.NoneType)
        )
    return {
        "str": "text",
        "int": "whole number",
        "float": "number",
        "bool": "true or false",
        "Path": "path",
    }.get(getattr(annotation, "__name__", ""), "anything")


def _default(field: FieldInfo) -> str:
    """What a key is if it is left out; empty for one that has to be given."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if (
        value is PydanticUndefined
        or value is None
        or isinstance(value, BaseModel)
        or value in ((), {})
    ):
        return "none" if value is None else "as below" if isinstance(value, BaseModel) else "empty"
    return json.dumps(value, default=str)


def _unit(name: str) -> str:
    if name in NOT_COUNTED:
        return ""
    return FIELD_UNITS.get(name) or next(
        (unit for ending, unit in FIELD_UNITS.items() if name.endswith(ending)), ""
    )


def page() -> str:
    """The reference as Markdown."""
    lines = [
        "# Every setting",
        "",
        "Generated from the code that reads the files. A key without a default has to be given.",
    ]
    for file, name in NAMES.items():
        lines += [
            "",
            f"## {name}",
            "",
            "| key | type | default | unit | meaning |",
            "|---|---|---|---|---|",
        ]
        for s in settings_of(file):
            cells = [f"`{s.key}`", s.type, f"`{s.default}`" if s.default else "", s.unit, s.meaning]
            lines.append(
                "| "
                + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
                + " |"
            )
    return "\n".join(lines) + "\n"


def schema(file: str) -> dict[str, Any]:
    """The JSON schema of a file (`params` or `profile`), each key with its meaning."""
    made = FILES[file].model_json_schema()
    for model in sections(FILES[file]):
        part = made if model is FILES[file] else made["$defs"].get(model.__name__, {})
        for name, field in part.get("properties", {}).items():
            field["description"] = meaning(model, name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def write_schemas(folder: Path) -> list[Path]:
    """Write the schema of each file; returns where they are."""
    paths = []
    for file in FILES:
        paths.append(folder / f"{file}.json")
        write_text(paths[-1], json.dumps(schema(file), indent=1))
    return paths
