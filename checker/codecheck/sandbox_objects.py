"""Access to objects that stay in their process: the tests' access to a solution's objects, and a
solution's access to the tests' objects.

The host is the process that runs the solution; the checker is the process that runs the tests.

Uses only the standard library.
"""

from __future__ import annotations

import importlib
import inspect
import io
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "." in __name__:
    from codecheck.sandbox_values import Elsewhere, state_of
else:
    from sandbox_values import Elsewhere, state_of

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
    "binary": lambda value, name, other: getattr(operator, name)(value, other),
}
"""Operations that the checker may request on an object of the host, by name."""

MOST_AT_ONCE = 1024
"""Maximum number of items per request to an iterator.

Requests start with one item and double in size, so an endless iterator runs at most about twice as
far as the tests need. The first eight items of a generator are requested singly, because tests may
send values to the generator.
"""

_ASKED = (
    *("__iter__", "__next__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__call__"),
    *("__enter__", "__exit__", "__int__", "__float__", "__index__"),
)
_ORDER = ("__lt__", "__gt__", "__le__", "__ge__")
_BINARY = (*_ORDER, "__add__", "__sub__", "__mul__", "__matmul__", "__truediv__", "__mod__")


class Held:
    """Store of the host's objects, by number."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._error: Exception = StopIteration()
        self._loop: Any = None

    def hold(self, value: Any) -> Any:
        """Return a reference to an object: its number, with the operations that tests may request;
        for an object lent by the tests, the number under which they lent it.
        """
        if isinstance(value, Lent):
            return ["lent", [object.__getattribute__(value, "_number")]]
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # keeps the object alive, and so its id unique
        kind: Any = type(value)
        runs = "coroutine" if inspect.iscoroutine(value) else ""
        if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            runs = "generator" if inspect.isgenerator(value) else "iterator"
        asked = [
            name
            for name in (*_ASKED, *_BINARY)
            if getattr(kind, name, None) not in (None, getattr(object, name, None))
        ]
        equals = kind.__eq__ is not object.__eq__
        return ["object", [number, kind.__name__, [] if runs else asked, runs, equals]]

    def find(self, content: Any) -> Any:
        """Return the object that a reference's content identifies."""
        return self._objects[content[0]]

    def some(self, iterator: Iterator[Any], most: int) -> tuple[list[Any], str]:
        """Return at most `most` of the iterator's next items, and what follows them: "more" if
        there may be more items, "end" if there are none, or "error" if the iterator raised an
        error, which `fail` raises again.
        """
        items: list[Any] = []
        try:
            for item in islice(iterator, most):
                items.append(item)  # one by one, to keep the items before an error
        except Exception as error:
            self._error = error
            return items, "error"
        return items, "more" if len(items) == most else "end"

    def fail(self, iterator: Iterator[Any]) -> None:
        """Raise the last error that an iterator raised in `some`."""
        raise self._error

    def wait(self, coroutine: Any) -> Any:
        """Return a coroutine's result; all coroutines run in one event loop, one after another."""
        asyncio = importlib.import_module("asyncio")
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)


class Lent(Elsewhere):
    """Proxy of one of the tests' objects, for a solution. The solution can call it, iterate over it
    and request what `Lending.do` allows, but can't inspect it.
    """

    def __init__(self, ask: Callable[..., Any], number: int, said: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)
        for name in ("__name__", "__qualname__", "__doc__"):
            if name in said:
                object.__setattr__(self, name, said[name])
        if "parameters" in said:
            parameter, none = inspect.Parameter, inspect.Parameter.empty
            signature = inspect.Signature(
                [
                    parameter(n, kind, default=None if d else none)
                    for n, kind, d in said["parameters"]
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
    """Return a proxy of one of the tests' objects, with the operations that the object supports."""
    number, said = content
    methods = {name: _LENT[name] for name in said["can"]}
    return type("Lent", (Lent,), methods)(ask, number, said)


_OPEN = ("_io", "random", "queue", "_queue", "threading", "_thread")
"""Modules of the standard library. A solution may use the public attributes of lent objects whose
classes these modules define.
"""


class Lending:
    """Store, by number, of the tests' objects that were passed to a solution; it decides what the
    solution may do with them.

    It also keeps the proxies of the host's objects, so that a proxy that the tests pass back
    becomes the object itself.
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._standing: dict[int, tuple[Any, Any]] = {}

    def meet(self, content: Any) -> Any:
        """Return a proxy of a host's object."""
        found = met(self._ask, content)
        self._standing[id(found)] = found, content
        return found

    def lend(self, value: Any) -> Any:
        """Return a reference to a value: for a library function or class, its name; for a proxy of
        a host's object, that object; for anything else, a number.
        """
        if isinstance(value, Remote):
            return ["object", value._content]
        if id(value) in self._standing:
            return ["object", self._standing[id(value)][1]]
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
        """Return the lent object that a reference's content identifies. Raises LookupError if there
        is none.
        """
        number = content[0]
        if not isinstance(number, int) or number < 0:
            raise LookupError(number)
        return self._objects[number]

    def do(self, operation: str, value: Any, *arguments: Any, **named: Any) -> Any:
        """Carry out a solution's request on an object. Raises PermissionError for an object that
        was not lent, and for an operation that could give access to the tests themselves.
        """
        if id(value) not in self._numbers:
            raise PermissionError(
                "expected an object that the tests have passed to the solution, found another"
            )
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
        raise PermissionError(f"{operation!r} isn't allowed on the tests' {type(value).__name__}")


def _library_name(value: Any) -> list[str] | None:
    """Return the module and the name of a function or class in Python's standard library, or None
    for any other value.
    """
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


class Remote(Elsewhere):
    """Proxy of a host's object, for the checker.

    It equals any other proxy of the same object. If the object's class defines equality, it also
    equals the value that the object holds, and a proxy of an object with the same class and state.
    """

    _ask: Callable[..., Any]
    _content: Any

    def __init__(self, ask: Callable[..., Any], content: Any) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_content", content)

    def __getattr__(self, name: str) -> Any:
        known = ("__name__", "__qualname__", "__doc__", "__dict__")
        if name.startswith("__") and name not in known:
            raise AttributeError(name)
        return self._ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", self, name, value)

    def __eq__(self, other: object) -> bool:
        # The class's own answer isn't enough: the state is compared too.
        its = other._content if isinstance(other, Remote) else None
        if its is not None and self._content[0] == its[0]:
            return True
        if not self._content[4] or (its and type(self).__name__ != type(other).__name__):
            return False
        try:
            state = self._ask("state", self)
            if its is not None:
                return bool(its[4] and state == self._ask("state", other))
        except TypeError:  # the object has no attributes
            return False
        # The object has revealed its state before it learns the other value, so it can't adapt the
        # state to that value.
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


class Solution:
    """Proxy of the requested function or class. The tests can call it and read its attributes."""

    def __init__(self, ask: Callable[..., Any], name: str) -> None:
        self._ask = ask
        self.__name__ = self.__qualname__ = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return the function's result. Raises any error that the function raises."""
        return self._ask("call", None, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__annotations__":
            raise AttributeError(name)
        return self._ask("attribute", None, name)

    __doc__ = property(lambda self: self._ask("attribute", None, "__doc__"))  # type: ignore


def _is_value(state: Any, other: Any) -> bool:
    """Return True if an object's attributes equal this value: a single attribute by itself; several
    attributes as a tuple or list of their values, or as a dictionary by name.

    Each kind of value is compared in only one of these ways, so an object can't match several
    values.
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


def _asked_of_two(name: str) -> Callable[[Any, Any], Any]:
    """Return a method for a binary operator. The method accepts only another object of the host as
    its operand, because a value of the tests could reveal the expected result.
    """

    def ask(self: Any, other: Any) -> Any:
        if not isinstance(other, Remote):
            return NotImplemented
        found = self._ask("binary", self, name, other)
        both = name in _ORDER and found and self._ask("binary", other, name, self)
        if both and (name in _ORDER[:2] or self != other):
            return NotImplemented  # each object claims to come before the other
        return found

    return ask


_ASKS: dict[str, Callable[..., Any]] = {
    "__iter__": lambda self: iterated(self._ask, self._ask("iterate", self)),
    "__next__": lambda self: self._ask("next", self),
    "__len__": lambda self: self._ask("length", self),
    "__getitem__": lambda self, key: self._ask("item", self, key),
    "__setitem__": lambda self, key, value: self._ask("put", self, key, value),
    "__delitem__": lambda self, key: self._ask("delete", self, key),
    "__call__": lambda self, *arguments, **named: self._ask("call", self, *arguments, **named),
    "__enter__": lambda self: self._ask("enter", self),
    "__exit__": _leave,  # never suppresses the tests' exceptions
    "__int__": lambda self: self._ask("int", self),
    "__float__": lambda self: self._ask("float", self),
    "__index__": lambda self: self._ask("index", self),
    **{name: _asked_of_two(name) for name in _BINARY},
}


def met(ask: Callable[..., Any], content: Any) -> Any:
    """Return a proxy of a host's object: a generator for a generator or built-in iterator, a
    coroutine for a coroutine, or else a Remote with the operations that the object supports.
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
    """Yield the items of a host's generator, the first eight one by one, because tests may send
    values to the generator or close it.
    """
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
    """Yield the items of a host's iterator, requesting them as needed, or the items of any other
    iterable.
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
