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
    "half_s": "seconds",
    "_s": "seconds",
    "_gib": "GiB",
    "_bytes": "bytes",
    "tokens": "tokens",
    "max_model_len": "tokens",
    "_tflops": "TFLOP/s",
}
"""By how the name of a key ends."""

UNIT_OF = {"dollars": "$", "price": "$ per million tokens", "limit": "budget.metric's"}
USUAL = Path(__file__).with_name("usual.txt").read_text(encoding="utf-8")
"""Keys that a user sets; every other key has a default that experts change."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its place, type, default (if it may be left out), unit (if any), and meaning."""

    key: str
    type: str
    default: str
    unit: str
    meaning: str


def settings_of(file: str) -> list[Setting]:
    """A file's (`params`, `profile`) keys by section, each told once; `<name>` is yours."""
    return list(_walk(FILES[file], "", {}))


def meaning(model: type[BaseModel], name: str) -> str:
    """What a field means, on one line, or "". Pydantic would parse files at each import."""
    said = _meanings(model).get(name) or model.model_fields[name].description
    is_kind = typing.get_origin(model.model_fields[name].annotation) is typing.Literal
    return said or ("which of these it is" if is_kind and name == "kind" else "")


@cache
def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """The texts below a model's fields, by name."""
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
    """The keys below a prefix, without those that stages add; `known` has where the keys of other
    sections stand. A section of several kinds is named with each, which so has no row of its own.
    """
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if field.json_schema_extra == FOUND_OUT or key.endswith(").kind"):
            continue
        inner = list(models_in(field.annotation))
        elsewhere = {known[section].partition("(")[0] for section, _ in inner if section in known}
        said = meaning(model, name) + "".join(f"; keys as in `{place}`" for place in elsewhere)
        unit = UNIT_OF.get(name) or next((UNITS[end] for end in UNITS if name.endswith(end)), "")
        kinds = _kinds(section for section, _ in inner)
        yield Setting(key, _type(field.annotation) + kinds, _default(field), unit, said)
        for section, way in inner:
            if section not in known:
                known[section] = f"{key}{way}" + (f"({_kind(section)})" if kinds else "")
                yield from _walk(section, f"{known[section]}.", known)


def _kinds(several: Iterable[type[BaseModel]]) -> str:
    """The kinds of a section, one of which its `kind` names; "" of a section that has no kinds."""
    kinds = [_kind(section) for section in several]
    return f" with kind: {', '.join(kinds)}" if len(kinds) > 1 and all(kinds) else ""


def _kind(section: type[BaseModel]) -> str:
    field = section.model_fields.get("kind")
    kinds = typing.get_args(field.annotation) if field is not None else ()
    return str(kinds[0]) if kinds else ""


def _type(annotation: Any) -> str:
    """A type in words of YAML."""
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
    """What a key is if it is left out; empty for one that has to be given."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "as below"
    return "empty" if value in ((), {}) else json.dumps(value, default=str)


def page() -> str:
    """The reference as Markdown."""
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
