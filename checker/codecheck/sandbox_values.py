"""Transfer of values between the two processes behind a verdict.

Plain data and the content of the standard library's own types are sent and rebuilt, so that the
checker compares values that it created. Mutable values are sent once and referenced by their number
in a table, which preserves cycles, depth and identity. Any other object stays in its process: the
checker gets a `Remote`, which requests attributes, items, text and calls; each answer is itself
sent in one of these ways. Order comparisons and arithmetic are requested only between two such
objects, because a dishonest object that learned the expected value could decide a test's outcome.

Uses only the standard library, and numpy if the program does.
"""

from __future__ import annotations

import enum
import importlib
import operator
import re
import sys
import types
from array import array
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo


class Elsewhere:
    """Base class of proxies for objects in the other process."""


def _slots_of(kind: type[Any]) -> dict[str, Any]:
    return {
        name: found
        for base in kind.__mro__
        for name, found in vars(base).items()
        if isinstance(found, types.MemberDescriptorType) and found.__objclass__ is base
    }


def state_of(value: Any) -> dict[str, Any]:
    """Return an object's attributes, from its dictionary and its slots. Raises TypeError if the
    object has neither.
    """
    slots = _slots_of(type(value))
    if not slots and not hasattr(value, "__dict__"):
        raise TypeError(f"objects of type {type(value).__name__} have no attributes")
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | dict(
        getattr(value, "__dict__", {})
    )


_INLINE: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "frozenset": frozenset}
_MAPPINGS: dict[str, type[dict[Any, Any]]] = {k.__name__: k for k in (Counter, OrderedDict, dict)}
_OWN_KINDS: tuple[type[Any], ...] = (list, set, bytearray, *_MAPPINGS.values())
_PLAIN: dict[str, Callable[[], Any]] = {kind.__name__: kind for kind in _OWN_KINDS}
_PLAIN["namespace"] = types.SimpleNamespace
_VIEWS: dict[str, tuple[type[Any], Callable[[list[Any]], Any]]] = {
    "keys": (type({}.keys()), lambda items: dict.fromkeys(items).keys()),
    "values": (type({}.values()), lambda items: dict(enumerate(items)).values()),
    "items": (type({}.items()), lambda items: dict(items).items()),
}
# The arguments that rebuild a value of each type. Subclasses are excluded, because they may lie.
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
_CONSTANTS = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "Fraction": Fraction,
    "Decimal": Decimal,
    "int": lambda content: int(content, 16),
    "complex": lambda content: complex(*content),
    "bytes": bytes.fromhex,
    "constant": _CONSTANTS.__getitem__,
}
_ARRAY_KINDS = "biufcUSMm"
"""numpy's codes for the kinds of data types whose arrays are sent."""


class Shells:
    """Functions for the transfer of mutable values, which are created empty and then filled."""

    @staticmethod
    def kind_of(value: Any) -> str | None:
        """Return the kind of a mutable value, or None for any other value. An instance of another
        dict subclass has the kind `dict`; an instance of a subclass of list, set, deque, bytearray
        or array has the kind of that class.
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
        """Return the parts of a mutable value of this kind: the argument that creates an empty one
        (None if none is needed), and the content as a list.
        """
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
        """Return an empty value of this kind. Raises ValueError for an unknown kind."""
        if kind == "defaultdict":
            return defaultdict(made_with)
        if kind == "deque":
            return deque(maxlen=made_with)
        if kind == "array":
            return array(made_with)
        if kind not in _PLAIN:
            raise ValueError(f"expected plain data, found a value of kind {kind!r}")
        return _PLAIN[kind]()

    @staticmethod
    def fill(shell: Any, items: list[Any]) -> None:
        """Replace the content of a mutable value with these items."""
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
    """Converter between values and JSON in one of the two processes.

    `hold` returns a reference [kind, content] for an object that stays in its process: an "object"
    of the host, or one "lent" by the checker. `meet` resolves the former, `borrow` the latter.
    Instances of the `given` classes, which both processes know by name, are sent as their state.
    Functions and classes of Python's library are sent by name, and only to the host.
    """

    hold: Callable[[Any], Any]
    meet: Callable[[Any], Any]
    given: Mapping[str, type[Any]] = field(default_factory=dict)
    borrow: Callable[[Any], Any] | None = None
    finds_library: bool = False
    _objects: list[Any] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def pack(self, root: Any, known: Sequence[Any] = ()) -> tuple[dict[str, Any], list[Any]]:
        """Return a value as a message, and the objects in its table: `known` first, in their
        current state.
        """
        outer = self._objects, self._numbers
        self._objects = []
        self._numbers = {}
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
        """Return the value of a message from `pack`, and the objects in its table.

        The table's first entries replace the content of the objects in `into`, unless an entry is
        None; all other objects are created. Raises ValueError for a malformed message.
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
            self._objects.append(value)  # keeps the object alive, and so its id unique
        return ["at", number]

    def _entry(self, value: Any) -> Any:
        """Return the table entry of a mutable value: [kind, argument to create it, content]."""
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
            raise ValueError(f"expected a value of the kind that was sent, found {kind!r}")

    def encode(self, value: Any) -> Any:
        """Return a value as JSON: plain data unchanged, other values as [kind, content]."""
        if _is_array(value):
            return self._numbered(value)
        if _is_array(value, "generic"):
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
        # Compared by name, because a solution that repeats the given code has its own classes.
        given = self.given.get(type(value).__name__)
        if given is None or isinstance(value, Elsewhere):
            return False
        plain: Any = object.__new__
        return given.__new__ is plain or isinstance(value, enum.Enum)

    def _encode_all(self, values: Any) -> list[Any]:
        return [self.encode(item) for item in values]

    def _decode_all(self, values: Any) -> list[Any]:
        return [self.decode(item) for item in values]

    def decode(self, value: Any) -> Any:
        """Return the value that `encode` converted to this data. Raises ValueError for malformed
        data.
        """
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise ValueError("expected plain data, found a JSON object")
            return value
        kind, content = value
        if kind in _INLINE:
            return _INLINE[kind](self._decode_all(content))
        if kind in _VIEWS:
            return _VIEWS[kind][1](self._decode_all(content))
        if kind in _MADE:
            return _MADE[kind](*self._decode_all(content))
        if kind in _SCALARS:
            return _SCALARS[kind](content)
        return getattr(self, f"_decode_{kind}")(content)

    def _decode_at(self, content: Any) -> Any:
        return self._objects[operator.index(content)]

    def _decode_scalar(self, content: Any) -> Any:
        dtype, data = content
        numpy = importlib.import_module("numpy")
        return numpy.frombuffer(bytes.fromhex(data), dtype=_array_type(dtype))[0]

    def _decode_named(self, content: Any) -> Any:
        name, names, items = content
        # type: ignore[misc]
        return namedtuple(str(name), names, rename=True)(*self._decode_all(items))

    def _decode_member(self, content: Any) -> Any:
        kind, name = content
        if not issubclass(self.given[kind], enum.Enum):
            raise ValueError(f"expected an enumeration, found the class {kind}")
        return self.given[kind][name]

    def _decode_object(self, content: Any) -> Any:
        return self.meet(content)

    def _decode_lent(self, content: Any) -> Any:
        if self.borrow is None:
            raise ValueError("expected no lent object in this process, found one")
        return self.borrow(content)

    def _decode_library(self, content: Any) -> Any:
        if not self.finds_library:  # a solution must not reach the checker's library by name
            raise ValueError("expected plain data, found an object of the library")
        module, name = content
        return operator.attrgetter(name)(importlib.import_module(module))


def _is_array(value: Any, name: str = "ndarray") -> bool:
    kind = getattr(sys.modules.get("numpy"), name, None)
    return kind is not None and isinstance(value, kind) and value.dtype.kind in _ARRAY_KINDS


def _array_type(text: Any) -> Any:
    dtype = importlib.import_module("numpy").dtype(str(text))
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"expected an array of plain data, found the data type {dtype}")
    return dtype


def _empty_array(dtype: Any, shape: Any) -> Any:
    return importlib.import_module("numpy").empty(shape, dtype=_array_type(dtype))


def set_state(value: Any, state: Mapping[str, Any]) -> None:
    """Replace the attributes of an instance of a trusted class. Raises ValueError if a solution's
    object would replace a method, because the solution could then answer for the trusted class.
    """
    kind = type(value)
    slots = _slots_of(kind)
    own = own_state(kind, state)
    for name, slot in slots.items():
        if name in own:
            slot.__set__(value, own.pop(name))
    if own or hasattr(value, "__dict__"):
        value.__dict__.clear()
        value.__dict__.update(own)


def own_state(kind: type[Any], state: Any) -> dict[str, Any]:
    """Return a copy of the state received for an instance of a trusted class. Raises ValueError if
    a solution's object would replace a method, because the solution could then answer for the
    trusted class.
    """
    taken = [
        name
        for name, value in dict(state).items()
        if isinstance(value, Elsewhere) and callable(getattr(kind, name, None))
    ]
    if taken:
        raise ValueError(f"{kind.__name__}.{taken[0]} is a method and can't be replaced")
    return dict(state)


def classes_of(names: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Return the classes that a module with these global names defines, by name."""
    here = names.get("__name__")
    return {
        name: kind
        for name, kind in names.items()
        if isinstance(kind, type) and kind.__module__ == here
    }
