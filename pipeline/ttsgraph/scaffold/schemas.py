"""JSON schemas of settings files for editors, generated from the pydantic models that read the
files; a setting's meaning is written below its field.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import typing
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import sections
from ttsgraph.settings.profile import Params, Profile

FILES: dict[str, type[BaseModel]] = {"params": Params, "profile": Profile}


def meaning(model: type[BaseModel], name: str) -> str:
    """Return a field's meaning on one line, or "" if it has none. Pydantic has an option for this,
    but it isn't used because it would parse the source files at every import.
    """
    text = _meanings(model).get(name) or model.model_fields[name].description
    is_kind = typing.get_origin(model.model_fields[name].annotation) is typing.Literal
    return text or ("which of these it is" if is_kind and name == "kind" else "")


@cache
def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a settings model, by field name."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, text in itertools.pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                found[name] = " ".join(said.split())
    return found


def schema(file: str) -> dict[str, Any]:
    """Return the JSON schema of a file (`params` or `profile`), with the meaning of each key."""
    made = FILES[file].model_json_schema()
    for model in sections(FILES[file]):
        part = made if model is FILES[file] else made["$defs"].get(model.__name__, {})
        for name, field in part.get("properties", {}).items():
            field["description"] = meaning(model, name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def write_schemas(folder: Path) -> list[Path]:
    """Write a schema for each kind of settings file; return the schemas' paths."""
    paths = {file: folder / f"{file}.json" for file in FILES}
    for file, path in paths.items():
        write_text(path, json.dumps(schema(file), indent=1))
    return list(paths.values())
