"""What code a module runs: its import closure, and a digest that comments and docstrings don't
change.

Files are parsed, never imported. A module depends on what it imports anywhere, on its packages, and
on the files next to it that it names in a string (a script, a folder of templates).
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

from ttsgraph.base.files import keep, kept
from ttsgraph.base.state import STATE

MEMORY = STATE / "code.json"
"""Where a project's processes keep what they parsed, for each other."""

PACKAGES = ("ttsgraph", "ttsgraph_flows", "codecheck", "finalanswer")
"""What is read: the library, the stages, the checker of programs and the reader of answers."""

_WITHOUT_MEANING = ("ctx", "kind", "type_comment", "type_ignores", "lineno", "end_lineno")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a module's text says: its digest, the modules that it may import, and the strings in it
    that may name files; and the hash of what it was parsed from, its package and text.
    """

    digest: str
    imports: tuple[str, ...]
    names: tuple[str, ...]
    content: str


class Code:
    """The modules of packages in some source roots, by dotted name; each file is read once. What
    was parsed is kept in the file `memory`, if there is one, by content, as parsing takes a second;
    where that is missing, damaged or another version's, files are parsed. Who may write it can
    falsify a digest, but also the call cache next to it, and so the results themselves.
    """

    def __init__(
        self, *roots: Path, memory: Path | None = None, packages: Sequence[str] = PACKAGES
    ) -> None:
        self.roots = tuple(dict.fromkeys(roots))
        self.packages = packages
        self.memory = memory
        self._parsed: dict[str, Parsed] = {}
        self._named: dict[str, tuple[list[str], list[str]]] = {}
        self._known = _remembered(memory) if memory else {}

    @cached_property
    def modules(self) -> Mapping[str, Path]:
        """Dotted name -> file."""
        found = {}
        for folder in (root / package for root in self.roots for package in self.packages):
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def _within(self, path: Path) -> Path:
        return next(path.relative_to(root) for root in self.roots if path.is_relative_to(root))

    def closure(self, *roots: str, without: Collection[str] = ()) -> tuple[str, ...]:
        """The modules that these run, themselves included, and files that those name; sorted.
        `without` are some that packages import, but these do not need. Raises KeyError for no
        module.
        """
        found: set[str] = set()
        files: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            parsed = self._read(name)
            package = name.rpartition(".")[0]
            plainly = [f"{package}.{each}" for each in parsed.imports if "." not in each]
            # Stages share most of their modules, and each string costs a look at the disk.
            if name not in self._named:
                self._named[name] = self._named_by(self.modules[name], parsed.names)
            named, more = self._named[name]
            files.update(more)
            waiting += (
                wanted
                for wanted in (package, *parsed.imports, *plainly, *named)
                if wanted in self.modules
                and not (wanted in without and wanted.rpartition(".")[0] == name)
            )
        return (*sorted(found), *sorted(files))

    def _named_by(self, path: Path, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Modules and other files that strings in a file name (next to it, or by dotted name)."""
        modules: list[str] = []
        files: list[Path] = []
        for name in names:
            place = path.parent / name
            if name.endswith(".py"):
                if place.is_file():
                    modules.append(".".join(self._within(place).with_suffix("").parts))
            elif "." in name and name in self.modules:
                modules.append(name)
            elif "/" in name or name in (".", ".."):
                continue
            elif place.is_file():
                files.append(place)
            elif place.is_dir() and not (place / "__init__.py").exists():
                below = (file for file in place.rglob("*") if "__pycache__" not in file.parts)
                files += filter(Path.is_file, below)
        return modules, [self._within(file).as_posix() for file in files]

    def digests(self, *roots: str, without: Collection[str] = ()) -> dict[str, str]:
        """Each member of the closure -> its digest."""
        found = {}
        for name in self.closure(*roots, without=without):
            if name in self.modules:
                found[name] = self._read(name).digest
            else:
                places = (root / name for root in self.roots)
                found[name] = _short(next(p for p in places if p.is_file()).read_bytes())
        return found

    def libraries(self, modules: Iterable[str]) -> set[str]:
        """What these modules import of others, by the first part of its name."""
        ours = (name for name in modules if name in self.modules)
        return {name.partition(".")[0] for each in ours for name in self._read(each).imports}

    def digest(self, *roots: str) -> str:
        """One digest of the closure."""
        return hashlib.sha256(json.dumps(self.digests(*roots), sort_keys=True).encode()).hexdigest()

    def _read(self, name: str) -> Parsed:
        if name not in self._parsed:
            path = self.modules[name]
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            source = path.read_bytes()
            known = self._known.get(name)
            if known is None or known.content != _content(source, package):
                known = parsed(source, package)
            self._parsed[name] = known
        return self._parsed[name]

    def remember(self) -> None:
        """Put what is parsed into the memory; of processes that do so the last is right too."""
        if self.memory and any(self._known.get(name) != new for name, new in self._parsed.items()):
            self._known |= self._parsed
            modules = {name: asdict(known) for name, known in self._known.items()}
            with suppress(OSError):
                keep(self.memory, {"made_by": _maker(), "modules": modules})


@lru_cache(maxsize=4)
def own_code(memory: Path | None = None) -> Code:
    """The code of this process, with a memory or without one."""
    places = (find_spec(package) for package in PACKAGES)
    folders = [Path(place.origin).parent for place in places if place and place.origin]
    return Code(*(folder.parent for folder in folders), memory=memory)


@lru_cache(maxsize=4096)
def parsed(source: bytes, package: str) -> Parsed:
    """A module of a package, parsed. Raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, field, None), list):
                setattr(node, field, [each for each in body if not _is_text(each)])
    imports = tuple(dict.fromkeys(_imports(tree.body, package)))
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = (each for each in values if isinstance(each, str) and 0 < len(each) <= 100)
    names = tuple(dict.fromkeys(text for text in texts if "\n" not in text))
    digest = _short(_dumped(tree).encode("utf-8", "surrogatepass"))
    return Parsed(digest, imports, names, _content(source, package))


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is a string alone: the docstring of a module, class, function or constant."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _imports(body: Iterable[ast.AST], package: str) -> Iterator[str]:
    """Dotted names that may be modules, without those imported for type checkers alone."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _imports(node.orelse, package)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*base, node.module] if node.module else base)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        yield from _imports(ast.iter_child_nodes(node), package)


def _dumped(node: object) -> str:
    """A syntax tree as text, the same in every version of Python, which `ast.dump` is not."""
    if isinstance(node, ast.AST):
        names = (name for name in node._fields if name not in _WITHOUT_MEANING)
        fields = ((name, getattr(node, name, None)) for name in names)
        shown = ",".join(
            f"{name}={_dumped(value)}"
            for name, value in fields
            if value is not None and value != []
        )
        return f"{type(node).__name__}({shown})"
    if isinstance(node, list):
        return f"[{','.join(map(_dumped, node))}]"
    return repr(node)


def _remembered(path: Path) -> dict[str, Parsed]:
    """What an earlier process with this code parsed; nothing where that can't be read."""
    try:
        data = kept(path)
        if data["made_by"] != _maker():
            return {}
        return {
            name: Parsed(**each | {key: tuple(each[key]) for key in ("imports", "names")})
            for name, each in data["modules"].items()
        }
    except (LookupError, TypeError, AttributeError):
        return {}


@lru_cache(maxsize=1)
def _maker() -> str:
    """What parses: this module and Python's own parser, each in its version."""
    return f"{_short(Path(__file__).read_bytes())} {sys.implementation.cache_tag}"


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _content(source: bytes, package: str) -> str:
    return _short(f"{package}\n".encode() + source)
