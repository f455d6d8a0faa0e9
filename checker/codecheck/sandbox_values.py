"""How values travel between the two processes behind a verdict.

Plain data, and what the standard library's own types hold, is sent and rebuilt, so that the checker
compares values of its own. Any other object stays where it lives: the checker gets a `Remote`,
which asks for attributes, items, text and calls, and takes each answer as a value again. No
comparison and no arithmetic is asked for, as those would let a lying object decide a test. Uses the
standard library only.
"""

from __future__ import annotations

import importlib
import operator
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda value, *arguments, **named: value(*arguments, **named),
    "attribute": getattr,
    "set": setattr,
    "state": lambda value: dict(vars(value)),
    "item": operator.getitem,
    "length": len,
    "iterate": iter,
    "next": next,
    "truth": bool,
    "text": str,
    "form": repr,
    "int": int,
    "float": float,
    "index": operator.index,
}
"""What a checker may ask of an object that lives in the host."""

MOST_AT_ONCE = 1024
"""Items of an iterator asked for at once, after one, two, four and so on: endless ones end where
the tests stop.
"""


_COLLECTIONS: dict[
    str, type[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any] | deque[Any]]
] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}
_MAPPINGS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "defaultdict": lambda pairs: defaultdict(None, pairs),
    "dict": dict,
}
_VIEWS: dict[str, tuple[type[Any], Callable[[list[Any]], Any]]] = {
    "keys": (type({}.keys()), lambda items: dict.fromkeys(items).keys()),
    "values": (type({}.values()), lambda items: dict(enumerate(items)).values()),
    "items": (type({}.items()), lambda items: dict(items).items()),
}
# What each is made of, as the arguments that make it again; of these types exactly, as a subclass
# may lie.
_PARTS: dict[type[Any], Callable[[Any], tuple[Any, ...]]] = {
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    datetime: lambda value: (*value.timetuple()[:6], value.microsecond, value.tzinfo),
    date: lambda value: (value.year, value.month, value.day),
    time: lambda value: (value.hour, value.minute, value.second, value.microsecond, value.tzinfo),
    timedelta: lambda value: (value.days, value.seconds, value.microseconds),
    timezone: lambda value: (value.utcoffset(None), value.tzname(None)),
    ZoneInfo: lambda value: (value.key,),
    UUID: lambda value: (value.hex,),
    bytearray: lambda value: (bytes(value),),
    array: lambda value: (value.typecode, value.tolist()),
}
_MADE = {kind.__name__: kind for kind in _PARTS}
_NUMBERS = {"Fraction": Fraction, "Decimal": Decimal}
_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}


@dataclass(slots=True)
class Codec:
    """Values as JSON and back, in one of the two processes.

    `hold` gives an object that stays where it lives as [kind, content]: an
    "object" of the host, or one "lent" by the checker. `meet` makes something of the one, `borrow`
    of the other. Instances of the classes that are `given` to both, by their names, are sent as
    their state. Functions and classes of Python's own library are sent by name, to the host alone.
    """

    hold: Callable[[Any], Any]
    meet: Callable[[Any], Any]
    given: Mapping[str, type[Any]] = field(default_factory=dict)
    borrow: Callable[[Any], Any] | None = None
    finds_library: bool = False

    def encode(self, value: Any) -> Any:
        """A value as JSON: plain data as itself, or as [kind, content]; subclasses as what they
        extend.
        """
        if value is None or isinstance(value, bool | float | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < 1 << 63 else ["int", hex(value)]
        kind = type(value)
        if kind in _PARTS:
            return [kind.__name__, self._encode_all(_PARTS[kind](value))]
        if isinstance(value, tuple) and isinstance(names := getattr(kind, "_fields", None), tuple):
            return ["named", [kind.__name__, list(names), self._encode_all(value)]]
        for name, collection in _COLLECTIONS.items():
            if isinstance(value, collection):
                return [name, self._encode_all(value)]
        if isinstance(value, dict):
            name = (
                kind.__name__
                if _MAPPINGS.get(kind.__name__) in (Counter, OrderedDict) or kind is defaultdict
                else "dict"
            )
            return [name, [self._encode_all(pair) for pair in value.items()]]
        for name, (view, _) in _VIEWS.items():
            if isinstance(value, view):
                return [name, self._encode_all(value)]
        if isinstance(value, complex):
            return ["complex", [value.real, value.imag]]
        if isinstance(value, bytes | bytearray):
            return ["bytes", bytes(value).hex()]
        if isinstance(value, Fraction | Decimal):
            return [
                type(value).__name__ if type(value).__name__ in _NUMBERS else _base(value),
                str(value),
            ]
        for name, constant in _CONSTANTS.items():
            if value is constant:
                return ["constant", name]
        if self._is_given(value) and isinstance(state := getattr(value, "__dict__", None), dict):
            return ["given", [kind.__name__, self.encode(state)]]
        return self.hold(value)

    def _is_given(self, value: Any) -> bool:
        # By its name, as a solution may repeat what it was given.
        given = self.given.get(type(value).__name__)
        plain: Any = object.__new__
        return given is not None and given.__new__ is plain and not isinstance(value, Remote)

    def _encode_all(self, values: Any) -> list[Any]:
        return [self.encode(item) for item in values]

    def decode(self, value: Any) -> Any:
        """The inverse of `encode`: nothing but values made here, whatever was sent. Raises
        ValueError on what is malformed.
        """
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise ValueError("expected plain data")
            return value
        kind, content = value
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind](self.decode(item) for item in content)
        if kind in _MAPPINGS:
            return _MAPPINGS[kind]({self.decode(key): self.decode(item) for key, item in content})
        if kind in _VIEWS:
            return _VIEWS[kind][1]([self.decode(item) for item in content])
        if kind in _MADE:
            return _MADE[kind](*(self.decode(part) for part in content))
        if kind in _NUMBERS:
            return _NUMBERS[kind](content)
        return getattr(self, f"_decode_{kind}")(content)

    def _decode_int(self, content: Any) -> int:
        return int(content, 16)

    def _decode_complex(self, content: Any) -> complex:
        return complex(*content)

    def _decode_bytes(self, content: Any) -> bytes:
        return bytes.fromhex(content)

    def _decode_constant(self, content: Any) -> Any:
        return _CONSTANTS[content]

    def _decode_named(self, content: Any) -> Any:
        name, names, items = content
        return namedtuple(str(name), names, rename=True)(*(self.decode(item) for item in items))  # type: ignore[misc]

    def _decode_given(self, content: Any) -> Any:
        name, state = content
        made = object.__new__(self.given[name])
        made.__dict__.update(own_state(self.given[name], self.decode(state)))
        return made

    def _decode_object(self, content: Any) -> Any:
        return self.meet(content)

    def _decode_lent(self, content: Any) -> Any:
        if self.borrow is None:
            raise ValueError("nothing is lent here")
        return self.borrow(content)

    def _decode_library(self, content: Any) -> Any:
        if not self.finds_library:  # a solution names nothing of the checker's
            raise ValueError("expected plain data")
        module, name = content
        return operator.attrgetter(name)(importlib.import_module(module))


def own_state(kind: type[Any], state: Any) -> dict[str, Any]:
    """The state of an instance that was sent. Raises ValueError where a solution's object stands in
    for a method of a trusted class, as it would answer in its place.
    """
    taken = [
        name
        for name, value in dict(state).items()
        if isinstance(value, Remote) and callable(getattr(kind, name, None))
    ]
    if taken:
        raise ValueError(f"{kind.__name__}.{taken[0]} was replaced")
    return dict(state)


def _base(value: Any) -> str:
    return "Fraction" if isinstance(value, Fraction) else "Decimal"


def classes_of(names: Mapping[str, Any]) -> dict[str, type[Any]]:
    """The classes that a program defined, by their names: those whose instances are sent as their
    state.
    """
    here = names.get("__name__")
    return {
        name: kind
        for name, kind in names.items()
        if isinstance(kind, type) and kind.__module__ == here
    }


_ASKED = (
    "__iter__",
    "__next__",
    "__len__",
    "__getitem__",
    "__call__",
    "__int__",
    "__float__",
    "__index__",
)


class Held:
    """The objects that live in the host, by number."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._error: Exception = StopIteration()

    def hold(self, value: Any) -> Any:
        """A number for an object, with what tests may ask of it; of what was lent, its own."""
        if type(value) is Lent:
            return ["lent", [object.__getattribute__(value, "_number")]]
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # and so keeps its id
        kind: Any = type(value)
        iterates = isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools")
        asked = [name for name in _ASKED if getattr(kind, name, None) is not None]
        equals = kind.__eq__ is not object.__eq__
        return ["object", [number, kind.__name__, [] if iterates else asked, iterates, equals]]

    def find(self, content: Any) -> Any:
        """The object of a number."""
        return self._objects[content[0]]

    def some(self, iterator: Iterator[Any], most: int) -> tuple[list[Any], str]:
        """Its next items, and whether there are `more` after them, an `end`, or an error, which
        `fail` raises.
        """
        items: list[Any] = []
        try:
            for item in islice(iterator, most):
                items.append(item)  # one by one: what came before an error counts
        except Exception as error:
            self._error = error
            return items, "error"
        return items, "more" if len(items) == most else "end"

    def fail(self, iterator: Iterator[Any]) -> None:
        """Raise what ended the iterator."""
        raise self._error


class Lent:
    """An object of the tests, for a solution: to be called and iterated, never looked into."""

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the tests' own function gives."""
        return self._ask("call", self, *arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._ask("iterate", self)
        return iterator if iterator is self or isinstance(iterator, Lent) else iter(iterator)

    def __next__(self) -> Any:
        items = self._ask("following", self)
        if not items:
            raise StopIteration
        return items[0]

    def __len__(self) -> int:
        return int(self._ask("length", self))

    def __bool__(self) -> bool:
        return bool(self._ask("truth", self))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", self, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._ask("attribute", self, name)


class Lending:
    """The objects of the tests that a solution was handed, by number, and what it may do."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def lend(self, value: Any) -> Any:
        """A function or class of Python's library by its name, anything else by a number."""
        if (named := _library_name(value)) is not None:
            return ["library", named]
        self._objects.append(value)
        return ["lent", [len(self._objects) - 1]]

    def find(self, content: Any) -> Any:
        """What was lent under a number. Raises LookupError."""
        number = content[0]
        if not isinstance(number, int) or number < 0:
            raise LookupError(number)
        return self._objects[number]

    def do(self, operation: str, value: Any, *arguments: Any, **named: Any) -> Any:
        """What a solution asks of an object. Raises PermissionError for what it may not, which is
        all that could lead it from an object to the tests themselves.
        """
        if not any(value is lent for lent in self._objects):
            raise PermissionError("this was not lent")
        own = type(value).__module__ in ("tests", "program")
        name = str(arguments[0]) if arguments else ""
        if operation == "call" and (own or callable(value)):
            return value(*arguments, **named)
        if operation == "iterate":
            return iter(value)
        if operation == "following":
            return list(islice(value, 1))
        if operation in ("length", "truth") and not callable(value):
            return OPERATIONS[operation](value)
        if operation == "item" and own:
            return value[arguments[0]]
        if operation == "attribute" and own and not name.startswith("_"):
            return getattr(value, name)
        raise PermissionError(f"{operation} of a {type(value).__name__} of the tests")


def _library_name(value: Any) -> list[str] | None:
    """The module and name of a function or class of Python's own library."""
    owner = getattr(value, "__objclass__", None)
    module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(value, Remote):
        return None
    if module.partition(".")[0] not in (*sys.stdlib_module_names, "builtins"):
        return None
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return [module, name] if found is value else None


def take_over(kept: Any, changed: Any) -> None:
    """Make a container what a solution made of it, in place; what it shares with others too."""
    if kept is changed or type(kept) is not type(changed):
        return
    if isinstance(kept, list) and len(kept) == len(changed):
        kept[:] = [_taken(old, new) for old, new in zip(kept, changed, strict=True)]
    elif isinstance(kept, list):
        kept[:] = changed
    elif isinstance(kept, dict):
        now = {key: _taken(kept.get(key), value) for key, value in changed.items()}
        kept.clear()
        kept.update(now)
    elif isinstance(kept, set):
        kept.clear()
        kept.update(changed)
    elif isinstance(kept, deque):
        kept.clear()
        kept.extend(changed)
    elif isinstance(kept, bytearray | array):
        kept[:] = changed
    elif isinstance(kept, tuple):
        for old, new in zip(kept, changed, strict=False):
            take_over(old, new)
    elif isinstance(getattr(changed, "__dict__", None), dict) and not isinstance(kept, Remote):
        kept.__dict__.clear()
        kept.__dict__.update(changed.__dict__)


def _taken(old: Any, new: Any) -> Any:
    """The old container with what is in the new one, if they are of one kind; else the new one."""
    if type(old) is not type(new) or not isinstance(old, list | dict | set | deque | bytearray):
        return new
    take_over(old, new)
    return old


class Remote:
    """An object that lives in the host, for the checker. It is equal to itself, and to one of its
    class in the same state if the class compares at all.
    """

    _ask: Callable[..., Any]
    _content: Any

    def __init__(self, ask: Callable[..., Any], content: Any) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_content", content)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in (
            "__name__",
            "__qualname__",
            "__doc__",
            "__dict__",
        ):
            raise AttributeError(name)
        return self._ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remote):
            return False
        if self._content[0] == other._content[0]:
            return True
        compares = (
            self._content[4] and other._content[4]
        )  # their class says what makes two of them equal, but not to us
        if not compares or type(self).__name__ != type(other).__name__:
            return False
        try:
            return bool(self._ask("state", self) == self._ask("state", other))
        except TypeError:  # without a state of its own
            return False

    def __hash__(self) -> int:
        return hash(type(self).__name__)

    def __bool__(self) -> bool:
        return bool(self._ask("truth", self))

    def __str__(self) -> str:
        return str(self._ask("text", self))

    def __repr__(self) -> str:
        return str(self._ask("form", self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


_ASKS: dict[str, Callable[..., Any]] = {
    "__iter__": lambda self: iterated(self._ask, self._ask("iterate", self)),
    "__next__": lambda self: self._ask("next", self),
    "__len__": lambda self: self._ask("length", self),
    "__getitem__": lambda self, key: self._ask("item", self, key),
    "__call__": lambda self, *arguments, **named: self._ask("call", self, *arguments, **named),
    "__int__": lambda self: self._ask("int", self),
    "__float__": lambda self: self._ask("float", self),
    "__index__": lambda self: self._ask("index", self),
}


def met(ask: Callable[..., Any], content: Any) -> Any:
    """What stands for an object of the host: a generator for an iterator of Python's own, else a
    Remote with what it can do.
    """
    _, name, asked, iterates, _ = content
    methods = {method: _ASKS[method] for method in asked}
    remote = type(str(name), (Remote,), methods)(ask, content)
    return iterated(ask, remote) if iterates else remote


def iterated(ask: Callable[..., Any], items: Any) -> Iterator[Any]:
    """The items of an iterator in the host, each asked for when it is wanted; of anything else, as
    it iterates itself.
    """
    if not isinstance(items, Remote):
        yield from items
        return
    most = 1
    after = "more"
    while after == "more":
        some, after = ask("some", items, most)
        yield from some
        most = min(2 * most, MOST_AT_ONCE)
    if after == "error":
        ask("fail", items)
