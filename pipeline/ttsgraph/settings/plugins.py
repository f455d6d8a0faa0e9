"""Task kinds, roles, methods and engines that plug-ins add. A plug-in is an entry point of an
installed package, or a module that a profile names (docs/extend.md).

The entry point of a task kind or an engine refers to a class or to an instance of it, the entry
point of a role to a Role, and the entry point of a method to a registered Searcher. A module
registers its content when it is imported.
"""

import importlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ttsgraph.base.errors import SettingsError

PLUGINS = "plugins"
"""Folder for the user's own modules. dvc.yaml lists it as an input of stages."""

GROUPS = ("ttsgraph.tasks", "ttsgraph.roles", "ttsgraph.methods", "ttsgraph.engines")


def load_for(profile: Any) -> None:
    """Import the modules that a profile names, and load the entry points of installed packages if
    one of the profile's kinds or roles is still unknown.

    This runs before kinds and roles are looked up. Raises SettingsError if a module or an entry
    point can't be used. Other errors in the profile are reported elsewhere.
    """
    if not isinstance(profile, Mapping):
        return
    names = profile.get("plugins")
    if isinstance(names, list | tuple) and names:
        load_modules(name for name in names if isinstance(name, str))
    if not _all_known(profile):
        load_entry_points()


def _all_known(profile: Mapping[str, Any]) -> bool:
    from ttsgraph.graphs.roles import role_names
    from ttsgraph.pool.engine import BUILT_IN, ENGINES
    from ttsgraph.tasks.base import TASKS

    try:
        kinds = [task["kind"] for task in profile["tasks"].values()]
        return (
            profile["engine"]["kind"] in (*BUILT_IN, *ENGINES)
            and all(kind in TASKS for kind in kinds)
            and all(role in role_names() for role in profile["roles"])
        )
    except (AttributeError, LookupError, TypeError):  # the profile is incomplete or malformed
        return False


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
        raise SettingsError(
            f"plugin {name!r}: expected a module that can be imported, but its import failed:"
            f" {_said(error)}"
        ) from None


@cache
def load_entry_points() -> None:
    """Register what the entry points of installed packages provide. Raises SettingsError naming the
    entry point if one can't be used.
    """
    for group in GROUPS:
        for found in entry_points(group=group):
            _register(group, found)


def _register(group: str, found: EntryPoint) -> None:
    where = f"entry point {found.name!r} of {group} ({found.value})"
    try:
        value: Any = found.load()
    except Exception as error:
        raise SettingsError(
            f"{where}: expected an object that can be imported, but its import failed:"
            f" {_said(error)}"
        ) from None
    if isinstance(value, ModuleType):  # the import has registered its content
        return
    if group == "ttsgraph.tasks":
        from ttsgraph.tasks.base import register_task

        register_task(value() if isinstance(value, type) else value)
    elif group == "ttsgraph.roles":
        from ttsgraph.graphs.roles import Role, register_role

        if not isinstance(value, Role):
            raise SettingsError(f"{where}: expected a Role, found {type(value).__name__}")
        register_role(value)
    elif group == "ttsgraph.engines":
        from ttsgraph.pool.engine import register_engine

        made = value() if isinstance(value, type) else value
        if not (hasattr(made, "servers") and isinstance(getattr(made, "name", None), str)):
            expected = "expected an engine with a `name` and a method `servers`"
            raise SettingsError(f"{where}: {expected}, found {value!r}")
        register_engine(made)
    # The decorator of a method's class has registered the class and set its name.
    elif not (isinstance(value, type) and isinstance(vars(value).get("name"), str)):
        raise SettingsError(
            f"{where}: expected a Searcher class with @register(name), found {value!r}"
        )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return module name -> MD5 of the module's file. Because of these digests, a search with a
    changed module counts as a different search.
    """
    from ttsgraph.base.files import md5

    modules = zip(names, load_modules(names), strict=True)
    files = {name: getattr(module, "__file__", None) for name, module in modules}
    return {name: md5(Path(file)) for name, file in files.items() if file}
