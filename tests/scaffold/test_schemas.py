"""The schemas of settings have every key with its meaning, as files are read."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.base.parsing import sections
from ttsgraph.scaffold.schemas import FILES, meaning, schema, write_schemas

MODELS = {model.__name__: model for file in FILES.values() for model in sections(file)}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_setting_says_what_it_means(name: str) -> None:
    model = MODELS[name]
    assert [key for key in model.model_fields if not meaning(model, key)] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "profiles").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_schema_takes_every_profile_and_refuses_a_key_that_is_not_known(path: Path) -> None:
    profile = yaml.safe_load(path.read_text())
    checker = jsonschema.Draft202012Validator(schema("profile"))
    assert [error.message for error in checker.iter_errors(profile)] == []
    profile["budget"]["limt"] = 3
    assert any("limt" in error.message for error in checker.iter_errors(profile))


def test_the_schemas_are_written_where_the_files_say_that_they_are(tmp_path: Path) -> None:
    written = {path.name for path in write_schemas(tmp_path)}
    for file in (ROOT / "params.yaml", *(ROOT / "profiles").glob("*.yaml")):
        named = file.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        path = (file.parent / named).resolve()
        assert (path.parent, path.name in written) == (ROOT / ".ttsgraph" / "schema", True)
