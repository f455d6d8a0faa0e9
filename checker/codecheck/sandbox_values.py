"""How values travel between the two processes behind a verdict.

Plain data, and what the standard library's own types hold, is sent and rebuilt, so that the checker
compares values of its own. What can change is sent once and named by its number in a table, so that
cycles, depth and "the same list" come through. Any other object stays where it lives: the checker
gets a `Remote`, which asks for attributes, items, text and calls, and takes each answer as a value
again; an order or arithmetic is never asked for, as a lying object would decide a test. Uses the
standard library only, and numpy where the program does.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import io
import operator
import re
import sys
import types
from array import array
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import PosixPath, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo


def state_of(value: Any) -> dict[str, Any]:
    """An object's attributes: those of its dictionary and of its slots. Raises TypeError where it
    has neither.
    """
    slots = [
        name
        for kind in type(value).__mro__
        for name, found in vars(kind).items()
        if isinstance(found, types.MemberDescriptorType) and found.__objclass__ is kind
    ]
    if not slots and not hasattr(value, "__dict__"):
        raise TypeError(f"a {type(value).__name__} has no attributes")
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | dict(
        getattr(value, "__dict__", {})
    )


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda value, *arguments, **named: value(*arguments, **named),
    "attribute": getattr,
    "set": setattr,
    "state": state_of,
    "equals": lambda value, other: bool(value == other),
    "item": operator.getitem,
    "put": operator.setitem,
    "delete": operator.delitem,
    "length": len,
    "iterate": iter,
    "next": next,
    "send": lambda value, sent: value.send(sent),
    "close": lambda value: value.close(),
    "enter": lambda value: value.__enter__(),
    "leave": lambda value: value.__exit__(None, None, None),
    "truth": bool,
    "text": str,
    "form": repr,
    "int": int,
    "float": float,
    "index": operator.index,
}
"""What a checker may ask of an object that lives in the host."""

MOST_AT_ONCE = 1024
"""Items of an iterator asked for at once, after eight single ones two, four and so on: endless ones
end where the tests stop, and short exchanges with a generator go step by step.
"""

_INLINE: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "frozenset": frozenset}
_MAPPINGS: dict[str, type[dict[Any, Any]]] = {
    "Counter": Counter,
    "OrderedDict": OrderedDict,
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
    PosixPath: lambda value: (str(value),),
    PurePosixPath: lambda value: (str(value),),
    re.Pattern: lambda value: (value.pattern, value.flags),
    ChainMap: lambda value: tuple(value.maps),
}
_MADE: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in _PARTS}
_MADE["Pattern"] = re.compile
_NUMBERS = {"Fraction": Fraction, "Decimal": Decimal}
_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_ARRAY_KINDS = "biufcUSMm"
"""The kinds of numpy's types whose arrays are sent."""


class Shells:
    """What may change, made empty, then filled: both halves of sending it, by the kind of it."""

    @staticmethod
    def kind_of(value: Any) -> str | None:
        """Its kind here; None for what is no such thing. Subclasses are sent as what they
        extend.
        """
        if type(value) is defaultdict:
            return "defaultdict"
        if isinstance(value, dict):
            name = type(value).__name__
            return name if _MAPPINGS.get(name) is type(value) else "dict"
        if type(value) is types.SimpleNamespace:
            return "namespace"
        for kind in (list, set, deque, bytearray, array):
            if isinstance(value, kind):
                return kind.__name__
        return None

    @staticmethod
    def parts(value: Any, kind: str) -> tuple[Any, Any]:
        """What it is made with, and what it is filled with."""
        if kind == "deque":
            return value.maxlen, list(value)
        if kind == "array":
            return value.typecode, value.tolist()
        if kind == "bytearray":
            return None, [bytes(value)]
        if kind == "namespace":
            return None, list(vars(value).items())
        if kind == "defaultdict":
            return value.default_factory, list(value.items())
        return None, list(value.items() if isinstance(value, dict) else value)

    @staticmethod
    def empty(kind: str, made_with: Any) -> Any:
        """One without content. Raises ValueError for a kind that is none."""
        if kind in _MAPPINGS:
            return _MAPPINGS[kind]()
        if kind == "defaultdict":
            return defaultdict(made_with)
        if kind == "deque":
            return deque(maxlen=made_with)
        if kind == "array":
            return array(made_with)
        plain: dict[str, Callable[[], Any]] = {
            "list": list,
            "set": set,
            "bytearray": bytearray,
            "namespace": types.SimpleNamespace,
        }
        if kind not in plain:
            raise ValueError("expected plain data")
        return plain[kind]()

    @staticmethod
    def fill(shell: Any, items: list[Any]) -> None:
        """Give it this content and no other."""
        if isinstance(shell, types.SimpleNamespace):
            shell = vars(shell)
        if isinstance(shell, bytearray):
            shell[:] = items[0]
        elif isinstance(shell, array):
            shell[:] = array(shell.typecode, items)
        elif isinstance(shell, list):
            shell[:] = items
        elif isinstance(shell, dict):
            shell.clear()
            for key, item in items:
                shell[key] = item
        else:
            shell.clear()
            shell.update(items) if isinstance(shell, set) else shell.extend(items)


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
    _objects: list[Any] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def pack(self, root: Any, known: Sequence[Any] = ()) -> tuple[dict[str, Any], list[Any]]:
        """A value as a message, and what stands in its table: `known` first, as they are now."""
        outer = self._objects, self._numbers
        self._objects, self._numbers = [], {}
        try:
            for value in known:
                self._numbered(value)
            message = {"root": self.encode(root), "table": []}
            while len(message["table"]) < len(self._objects):
                message["table"].append(self._entry(self._objects[len(message["table"])]))
            return message, self._objects
        finally:
            self._objects, self._numbers = outer

    def unpack(self, message: Mapping[str, Any], into: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
        """The inverse of `pack`: nothing but values made here, whatever was sent. The first ones
        of the table are put into these objects instead of new ones, where they changed.

        Raises ValueError on what is malformed.
        """
        outer = self._objects
        table = message["table"]
        try:
            self._objects = list(into)
            for entry in table[len(into) :]:
                self._objects.append(self._shell(entry))
            for shell, entry in reversed(list(zip(self._objects, table, strict=True))):
                if entry is not None:
                    self._fill(shell, entry)
            return self.decode(message["root"]), self._objects
        finally:
            self._objects = outer

    def _numbered(self, value: Any) -> Any:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # and so keeps its id
        return ["at", number]

    def _entry(self, value: Any) -> Any:
        """What stands in the table for what may change."""
        if (kind := Shells.kind_of(value)) is not None:
            made_with, items = Shells.parts(value, kind)
            return [kind, self.encode(made_with), self._encode_all(items)]
        if _is_array(value):
            return ["ndarray", value.dtype.str, [list(value.shape), value.tobytes().hex()]]
        return ["given", type(value).__name__, self._encode_all(state_of(value).items())]

    def _shell(self, entry: Any) -> Any:
        kind, made_with, content = entry
        if kind == "given":
            return object.__new__(self.given[made_with])
        if kind == "ndarray":
            return _empty_array(made_with, content[0])
        return Shells.empty(kind, self.decode(made_with))

    def _fill(self, shell: Any, entry: Any) -> None:
        kind, made_with, content = entry
        if kind == "ndarray" and _is_array(shell):
            sent = importlib.import_module("numpy").frombuffer(
                bytes.fromhex(content[1]), dtype=_array_type(made_with)
            )
            shell[...] = sent.reshape(content[0])
        elif kind == "given" and type(shell).__name__ == made_with:
            set_state(shell, dict(self._decode_all(content)))
        elif kind == Shells.kind_of(shell):
            Shells.fill(shell, self._decode_all(content))
        else:
            raise ValueError("expected what was sent, of its own kind")

    def encode(self, value: Any) -> Any:
        """A value as JSON: plain data as itself, or as [kind, content]."""
        if _is_array(value):
            return self._numbered(value)
        if _is_scalar(value):
            return ["scalar", [value.dtype.str, value.tobytes().hex()]]
        if isinstance(value, enum.Enum) and self._is_given(value):
            return ["member", [type(value).__name__, value.name]]
        if value is None or isinstance(value, bool | float | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < 1 << 63 else ["int", hex(value)]
        kind = type(value)
        if kind in _PARTS:
            return [kind.__name__, self._encode_all(_PARTS[kind](value))]
        if isinstance(value, tuple) and isinstance(names := getattr(kind, "_fields", None), tuple):
            return ["named", [kind.__name__, list(names), self._encode_all(value)]]
        for name, made in _INLINE.items():
            if isinstance(value, tuple if made is tuple else frozenset):
                return [name, self._encode_all(value)]
        if Shells.kind_of(value) is not None:
            return self._numbered(value)
        for name, (view, _) in _VIEWS.items():
            if isinstance(value, view):
                return [name, self._encode_all(value)]
        if isinstance(value, complex):
            return ["complex", [value.real, value.imag]]
        if isinstance(value, bytes):
            return ["bytes", bytes(value).hex()]
        if isinstance(value, Fraction | Decimal):
            return ["Fraction" if isinstance(value, Fraction) else "Decimal", str(value)]
        for name, constant in _CONSTANTS.items():
            if value is constant:
                return ["constant", name]
        if self._is_given(value):
            return self._numbered(value)
        return self.hold(value)

    def _is_given(self, value: Any) -> bool:
        # By its name, as a solution may repeat what it was given.
        given = self.given.get(type(value).__name__)
        if given is None or isinstance(value, Remote | Lent):
            return False
        plain: Any = object.__new__
        return given.__new__ is plain or isinstance(value, enum.Enum)

    def _encode_all(self, values: Any) -> list[Any]:
        return [self.encode(item) for item in values]

    def _decode_all(self, values: Any) -> list[Any]:
        return [self.decode(item) for item in values]

    def decode(self, value: Any) -> Any:
        """The inverse of `encode`. Raises ValueError on what is malformed."""
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise ValueError("expected plain data")
            return value
        kind, content = value
        if kind in _INLINE:
            return _INLINE[kind](self._decode_all(content))
        if kind in _VIEWS:
            return _VIEWS[kind][1](self._decode_all(content))
        if kind in _MADE:
            return _MADE[kind](*self._decode_all(content))
        if kind in _NUMBERS:
            return _NUMBERS[kind](content)
        return getattr(self, f"_decode_{kind}")(content)

    def _decode_at(self, content: Any) -> Any:
        return self._objects[operator.index(content)]

    def _decode_scalar(self, content: Any) -> Any:
        dtype, data = content
        numpy = importlib.import_module("numpy")
        return numpy.frombuffer(bytes.fromhex(data), dtype=_array_type(dtype))[0]

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
        return namedtuple(str(name), names, rename=True)(*self._decode_all(items))  # type: ignore[misc]

    def _decode_member(self, content: Any) -> Any:
        kind, name = content
        if not issubclass(self.given[kind], enum.Enum):
            raise ValueError("expected a member of an enumeration")
        return self.given[kind][name]

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


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    kind = getattr(numpy, "ndarray", None)
    return kind is not None and isinstance(value, kind) and value.dtype.kind in _ARRAY_KINDS


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    kind = getattr(numpy, "generic", None)
    return kind is not None and isinstance(value, kind) and value.dtype.kind in _ARRAY_KINDS


def _array_type(text: Any) -> Any:
    dtype = importlib.import_module("numpy").dtype(str(text))
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError("expected an array of plain data")
    return dtype


def _empty_array(dtype: Any, shape: Any) -> Any:
    return importlib.import_module("numpy").empty(shape, dtype=_array_type(dtype))


def set_state(value: Any, state: Mapping[str, Any]) -> None:
    """Give an instance of a trusted class these attributes and no others. Raises ValueError where
    a solution's object stands in for a method of it, as it would answer in its place.
    """
    kind = type(value)
    slots = {
        name: found
        for base in kind.__mro__
        for name, found in vars(base).items()
        if isinstance(found, types.MemberDescriptorType) and found.__objclass__ is base
    }
    own = own_state(kind, state)
    for name, slot in slots.items():
        if name in own:
            slot.__set__(value, own.pop(name))
    if own or hasattr(value, "__dict__"):
        value.__dict__.clear()
        value.__dict__.update(own)


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
    "__setitem__",
    "__delitem__",
    "__call__",
    "__enter__",
    "__exit__",
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
        self._loop: Any = None

    def hold(self, value: Any) -> Any:
        """A number for an object, with what tests may ask of it; of what was lent, its own."""
        if isinstance(value, Lent):
            return ["lent", [object.__getattribute__(value, "_number")]]
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # and so keeps its id
        kind: Any = type(value)
        runs = "coroutine" if inspect.iscoroutine(value) else ""
        if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            runs = "generator" if inspect.isgenerator(value) else "iterator"
        asked = [name for name in _ASKED if getattr(kind, name, None) is not None]
        equals = kind.__eq__ is not object.__eq__
        return ["object", [number, kind.__name__, [] if runs else asked, runs, equals]]

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

    def wait(self, coroutine: Any) -> Any:
        """What a coroutine returns; all run in one loop, one after the other."""
        asyncio = importlib.import_module("asyncio")
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)


class Lent:
    """An object of the tests, for a solution: to be called and iterated, never looked into."""

    def __init__(self, ask: Callable[..., Any], number: int, said: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)
        for name in ("__name__", "__qualname__", "__doc__"):
            if name in said:
                object.__setattr__(self, name, said[name])
        if "parameters" in said:
            signature = inspect.Signature(
                [
                    inspect.Parameter(
                        name, kind, default=None if given else inspect.Parameter.empty
                    )
                    for name, kind, given in said["parameters"]
                ]
            )
            names = tuple(signature.parameters)
            object.__setattr__(self, "__signature__", signature)
            code = types.SimpleNamespace(co_argcount=len(names), co_varnames=names)
            object.__setattr__(self, "__code__", code)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._ask("attribute", self, name)

    def __bool__(self) -> bool:
        return bool(self._ask("truth", self))


def _lent_items(lent: Any) -> Iterator[Any]:
    iterator = lent._ask("iterate", lent)
    return iterator if isinstance(iterator, Lent) else iter(iterator)


def _lent_next(lent: Any) -> Any:
    items = lent._ask("following", lent)
    if not items:
        raise StopIteration
    return items[0]


_LENT: dict[str, Callable[..., Any]] = {
    "__call__": lambda self, *arguments, **named: self._ask("call", self, *arguments, **named),
    "__iter__": _lent_items,
    "__next__": _lent_next,
    "__len__": lambda self: int(self._ask("length", self)),
    "__getitem__": lambda self, key: self._ask("item", self, key),
}


def borrowed(ask: Callable[..., Any], content: Any) -> Lent:
    """What stands for an object of the tests, with what it can do."""
    number, said = content
    methods = {name: _LENT[name] for name in said["can"]}
    return type("Lent", (Lent,), methods)(ask, number, said)


_OPEN = ("_io", "random", "queue", "_queue", "threading", "_thread")
"""Modules of the library whose objects a solution may use by their public attributes."""


class Lending:
    """The objects of the tests that a solution was handed, by number, and what it may do."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def lend(self, value: Any) -> Any:
        """A function or class of Python's library by its name, anything else by a number."""
        if (named := _library_name(value)) is not None:
            return ["library", named]
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        kind: Any = type(value)
        can = [name for name in _LENT if getattr(kind, name, None) is not None]
        said: dict[str, Any] = {"can": can}
        if callable(value):
            names = ("__name__", "__qualname__", "__doc__")
            said |= {n: t for n in names if isinstance(t := getattr(value, n, 0), str)}
            try:
                parameters = inspect.signature(value).parameters.values()
            except (ValueError, TypeError):
                return ["lent", [number, said]]
            said["parameters"] = [
                (p.name, int(p.kind), p.default is not p.empty) for p in parameters
            ]
        return ["lent", [number, said]]

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
        if id(value) not in self._numbers:
            raise PermissionError("this was not lent")
        own = type(value).__module__ in ("tests", "program")
        is_open = type(value).__module__ in _OPEN and not isinstance(value, io.TextIOWrapper)
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
        if operation == "attribute" and (own or is_open) and not name.startswith("_"):
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


class Remote:
    """An object that lives in the host, for the checker. It is equal to itself, to one of its
    class in the same state if the class compares at all, and to the value that it holds.
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
        # Their class says what makes two of them equal, but not to us: values do.
        its = other._content if isinstance(other, Remote) else None
        if its is not None and self._content[0] == its[0]:
            return True
        if not self._content[4] or (its and type(self).__name__ != type(other).__name__):
            return False
        try:
            state = self._ask("state", self)
            if its is not None:
                return bool(its[4] and state == self._ask("state", other))
        except TypeError:  # without attributes
            return False
        # It has shown the value before it hears of it, so that its word adds nothing to forge.
        return _is_value(state, other) and bool(self._ask("equals", self, other))

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


def _is_value(state: Any, other: Any) -> bool:
    """Whether an object's attributes are this value: one attribute alone, several as a tuple or
    list, or all by their names. There is one way for each kind of value, so that nobody can hold
    several.
    """
    if not isinstance(state, dict) or not state:
        return False
    values = list(state.values())
    if len(values) == 1:
        return bool(values[0] == other)
    if isinstance(other, tuple | list):
        return len(other) == len(values) and all(map(operator.eq, values, other))
    return bool(state == other)


def _leave(self: Any, *_: Any) -> None:
    self._ask("leave", self)


_ASKS: dict[str, Callable[..., Any]] = {
    "__iter__": lambda self: iterated(self._ask, self._ask("iterate", self)),
    "__next__": lambda self: self._ask("next", self),
    "__len__": lambda self: self._ask("length", self),
    "__getitem__": lambda self, key: self._ask("item", self, key),
    "__setitem__": lambda self, key, value: self._ask("put", self, key, value),
    "__delitem__": lambda self, key: self._ask("delete", self, key),
    "__call__": lambda self, *arguments, **named: self._ask("call", self, *arguments, **named),
    "__enter__": lambda self: self._ask("enter", self),
    "__exit__": _leave,  # which hides no exception of the tests
    "__int__": lambda self: self._ask("int", self),
    "__float__": lambda self: self._ask("float", self),
    "__index__": lambda self: self._ask("index", self),
}


def met(ask: Callable[..., Any], content: Any) -> Any:
    """What stands for an object of the host: a generator for an iterator of Python's own, a
    coroutine for a coroutine, else a Remote with what it can do.
    """
    _, name, asked, runs, _ = content
    methods: dict[str, Any] = {method: _ASKS[method] for method in asked}
    methods["__doc__"] = property(lambda self: self._ask("attribute", self, "__doc__"))
    remote = type(str(name), (Remote,), methods)(ask, content)
    if runs == "generator":
        return _stepped(ask, remote)
    if runs == "coroutine":
        return _waited(ask, remote)
    return iterated(ask, remote) if runs else remote


async def _waited(ask: Callable[..., Any], remote: Remote) -> Any:
    return ask("wait", remote)


def _stepped(ask: Callable[..., Any], remote: Remote) -> Iterator[Any]:
    """A generator in the host, first step by step, as it may be sent something or be closed."""
    try:
        for _ in range(8):
            some, after = ask("some", remote, 1)
            if not some:
                break
            sent = yield some[0]
            while sent is not None:
                try:
                    sent = yield ask("send", remote, sent)
                except RuntimeError as error:
                    if str(error).startswith("StopIteration"):
                        return
                    raise
        else:
            yield from iterated(ask, remote)
            return
    except GeneratorExit:
        ask("close", remote)
        raise
    if after == "error":
        ask("fail", remote)


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
