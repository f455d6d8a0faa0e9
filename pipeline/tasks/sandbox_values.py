"""How values travel between the two processes behind a verdict.

Plain data, and what the standard library's own types hold, is sent and rebuilt, so that the checker
compares values of its own. Any other object stays where it lives: the checker gets a `Remote`,
which asks for attributes, items, text and calls, and takes each answer as a value again. No
comparison and no arithmetic is asked for, as those would let a lying object decide a test. Uses the
standard library only.
"""

from __future__ import annotations

import builtins
import contextlib
import operator
import sys
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


class Unsendable(TypeError):
    """A value that is not plain data."""


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
}
_MADE = {kind.__name__: kind for kind in _PARTS}
_NUMBERS = {"Fraction": Fraction, "Decimal": Decimal}
_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}


@dataclass(slots=True)
class Codec:
    """Values as JSON and back, in one of the two processes.

    `hold` gives an object that stays here a number, or raises Unsendable; `meet` makes something of
    an object that lives, or lived, elsewhere. Instances of the classes that are `given` to both, by
    their names, are sent as their state.
    """

    hold: Callable[[Any], Any]
    meet: Callable[[Any], Any]
    given: Mapping[str, type[Any]] = field(default_factory=dict)

    def encode(self, value: Any) -> Any:
        """A value as JSON: plain data as itself, or as [kind, content]; subclasses as what they
        extend. Raises Unsendable.
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
        return ["object", self.hold(value)]

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
        """A number for an object, with what tests may ask of it."""
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # and so keeps its id
        kind: Any = type(value)
        iterates = isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools")
        asked = [name for name in _ASKED if getattr(kind, name, None) is not None]
        return [
            number,
            kind.__name__,
            [] if iterates else asked,
            iterates,
            kind.__eq__ is not object.__eq__,
        ]

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


def raised_by(error: Exception, codec: Codec) -> dict[str, Any]:
    """An exception as JSON: its class's name, the built-in classes it extends, its arguments, state
    and text.
    """
    kind = type(error)
    told: dict[str, Any] = {
        "name": kind.__name__,
        "own": kind.__module__ != "builtins",
        "module": kind.__module__,
        "bases": [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"],
        "arguments": [],
        "state": ["dict", []],
        "text": kind.__name__,
    }
    parts: dict[str, Callable[[], Any]] = {
        "text": lambda: str(error)[:2000],
        "arguments": lambda: [codec.encode(argument) for argument in error.args],
        "state": lambda: codec.encode(dict(vars(error))),
    }
    for key, make in parts.items():
        try:
            told[key] = make()
        except Exception:  # its own methods may fail, or it holds what can't travel
            continue
    return told


def exception_of(told: Mapping[str, Any], codec: Codec) -> Exception:
    """An exception to raise here: of the same built-in class, or of a class like the program's that
    extends the same ones.
    """
    bases = [
        kind
        for name in told["bases"]
        if isinstance(kind := getattr(builtins, str(name), None), type)
    ]
    bases = [kind for kind in bases if issubclass(kind, Exception)]
    nearest = tuple(
        kind
        for kind in bases
        if not any(other is not kind and issubclass(other, kind) for other in bases)
    )
    arguments = tuple(codec.decode(argument) for argument in told["arguments"])
    state = codec.decode(told["state"])
    text = str(told["text"])
    if nearest and issubclass(nearest[0], StopIteration | StopAsyncIteration):
        # It would end the loop of a test that calls the solution, as no function's error may.
        return RuntimeError(f"{told['name']}: {text}")
    if not told["own"] and len(nearest) == 1:
        error = _made(nearest[0], arguments)
    else:
        known = codec.given.get(str(told["name"])) or _of_library(told, nearest)
        kind = (
            known
            if known is not None and issubclass(known, Exception)
            else _like(str(told["name"]), nearest or (Exception,), text)
        )
        error = _made(kind, arguments)
    if isinstance(state, dict):
        error.__dict__.update(own_state(type(error), state))
    return error


def _of_library(
    told: Mapping[str, Any], nearest: tuple[type[Exception], ...]
) -> type[Exception] | None:
    """The standard library's class that was raised, where the tests have imported it: they may
    catch it by its name. Never one of unittest's: those skip or end the test that they pass.
    """
    module = str(told.get("module"))
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package == "unittest":
        return None
    found = getattr(sys.modules.get(module), str(told["name"]), None)
    if not (isinstance(found, type) and found.__module__ == module):
        return None
    ends = issubclass(found, StopIteration | StopAsyncIteration)
    return found if issubclass(found, nearest) and not ends else None


def _like(name: str, bases: tuple[type[Exception], ...], text: str) -> type[Exception]:
    try:
        return type(name, bases, {"__str__": lambda self: text})
    except TypeError:  # built-in classes that can't be extended together
        return type(name, bases[:1], {"__str__": lambda self: text})


def _made(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception:
    try:
        error = kind.__new__(kind, *arguments)
        with contextlib.suppress(
            TypeError
        ):  # which sets what the built-in class has beside its arguments
            built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            built_in.__init__(error, *arguments)
        error.args = arguments
    except Exception:
        return RuntimeError(f"{kind.__name__}: {arguments}"[:200])
    return error
