"""Modules that a profile names in `plugins`. Each registers its task kinds, roles, methods and
engines when it is imported (docs/extend.md).
"""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.files import md5

PLUGINS = "plugins"
"""Folder for the user's own modules. dvc.yaml lists it as an input of stages."""


def load_modules(names: Iterable[str]) -> list[ModuleType]:
    """Import modules by name; the working directory and its folder `plugins` are searched too.
    Raises SettingsError naming the module if one can't be imported.
    """
    for here in (str(Path.cwd() / PLUGINS), str(Path.cwd())):
        if here not in sys.path:
            sys.path.append(here)  # last, so that no file here hides a library
    return [_imported(name) for name in names]


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a user's module may raise anything
        lacking = error.name if isinstance(error, ModuleNotFoundError) else None
        if lacking is not None and name.startswith(lacking):
            raise SettingsError(
                f"plugin {name!r}: expected a module of this name, found none; put"
                f" {name.replace('.', '/')}.py into the project's folder {PLUGINS}, or install its"
                " package"
            ) from None
        said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise SettingsError(
            f"plugin {name!r}: expected a module that can be imported, but its import failed:"
            f" {said}"
        ) from None


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return module name -> MD5 of the module's file. Because of these digests, a search with a
    changed module counts as a different search.
    """
    modules = zip(names, load_modules(names), strict=True)
    files = {name: getattr(module, "__file__", None) for name, module in modules}
    return {name: md5(Path(file)) for name, file in files.items() if file}
