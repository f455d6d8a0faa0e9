"""The schemas of settings take every profile, and every key has its meaning below its field."""

import ast
import inspect
import itertools
import json

import jsonschema
import pytest
import yaml

from tests.support.cli import done
from tests.support.project import ROOT
from ttsgraph.base.parsing import sections
from ttsgraph.settings.profile import Params, Profile

MODELS = {model.__name__: model for file in (Params, Profile) for model in sections(file)}
FILES = (ROOT / "params.yaml", *sorted((ROOT / "profiles").glob("*.yaml")))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_setting_says_what_it_means(name):
    (definition,) = ast.parse(inspect.getsource(MODELS[name])).body
    assert isinstance(definition, ast.ClassDef)
    told = {"kind"}  # a literal that says which of several sections it is
    for field, text in itertools.pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(ast.Name(key)), ast.Expr(ast.Constant(str())):
                told.add(key)
    own = set(inspect.get_annotations(MODELS[name])) & set(MODELS[name].model_fields)
    assert own <= told


def test_the_schemas_take_the_files_that_name_them_and_refuse_a_key_that_is_not_known(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done("schema")
    for file in FILES:
        text = file.read_text()
        named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        path = (file.parent / named).resolve().relative_to(ROOT)
        checker = jsonschema.Draft202012Validator(json.loads(path.read_text()))
        settings = yaml.safe_load(text)
        assert [error.message for error in checker.iter_errors(settings)] == []
        settings["limt"] = 3
        assert any("limt" in error.message for error in checker.iter_errors(settings))
