"""Request/response protocol between a solution and its tests, over a pair of pipes. Either side may
send requests, even while the other waits for a reply.

Uses only the standard library.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "." in __name__:
    from codecheck.sandbox_errors import exception_of, raised_by
    from codecheck.sandbox_values import Codec
else:
    from sandbox_errors import exception_of, raised_by
    from sandbox_values import Codec

MAX_MESSAGE = 16 << 20
"""Maximum size of one request or reply, in bytes."""


class Channel:
    """Pair of pipes that carries messages, one per line."""

    def __init__(self, read: int, write: int) -> None:
        self._read = os.fdopen(read, "rb")
        self._write = os.fdopen(write, "wb")

    def send(self, message: Any) -> None:
        """Write one message. Raises OSError if the other end is closed."""
        self._write.write(json.dumps(message).encode() + b"\n")
        self._write.flush()

    def receive(self) -> Any:
        """Return the next message. Raises EOFError if there is none, and ValueError if it is too
        long or not JSON.
        """
        line = self._read.readline(MAX_MESSAGE)
        if not line.endswith(b"\n"):
            raise ValueError("expected a whole message, found one too long") if line else EOFError
        return json.loads(line)


class Wire:
    """One end of the pipes. `do` carries out the other end's requests."""

    def __init__(self, channel: Channel, codec: Codec, do: Callable[..., Any]) -> None:
        self.codec = codec
        self._channel = channel
        self._do = do
        self._one_at_a_time = threading.RLock()  # a solution's threads may make requests

    def ask(
        self,
        operation: str,
        target: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        is_compared: bool = False,
    ) -> tuple[Any, Exception | None]:
        """Return the result of an operation on the other end's object, and None; or None and the
        exception that the operation raised.

        The operation's changes to the arguments are applied in this process. If the tests compare
        results with arguments (`is_compared`), these changes are ignored unless the result is None:
        otherwise a solution could make its result equal to an argument by changing the argument.
        Raises EOFError if the other end has ended, and any error caused by a malformed message.
        """
        with self._one_at_a_time:
            asked, objects = self.codec.pack((operation, target, arguments, named))
            self._channel.send({"ask": asked})
            while "reply" not in (message := self._channel.receive()):
                self.answer(message["ask"])
        reply = message["reply"]
        changed = reply["table"][: len(objects)]
        if is_compared and reply["root"] is not None and any(changed):
            kept = zip(changed, asked["table"], strict=True)
            reply["table"][: len(objects)] = [new or old for new, old in kept]
            objects = []
        value, _ = self.codec.unpack(reply, objects)
        return (None, exception_of(value, self.codec.given)) if reply["raised"] else (value, None)

    def answer(self, asked: dict[str, Any]) -> None:
        """Carry out a request, and send back its result and the changed arguments."""
        with self._one_at_a_time:
            (operation, target, arguments, named), objects = self.codec.unpack(asked)
        raised = False
        try:
            value = self._do(operation, target, *arguments, **named)
        except Exception as error:
            value = raised_by(error)
            raised = True
        with self._one_at_a_time:
            try:
                reply, _ = self.codec.pack(value, objects)
            except Exception as error:
                told = raised_by(error) if not raised else value | {"arguments": (), "state": {}}
                reply, _ = self.codec.pack(told, objects)
                raised = True
            table = reply["table"]
            for k, before in enumerate(asked["table"]):
                table[k] = None if table[k] == before else table[k]
            self._channel.send({"reply": reply | {"raised": raised}})

    def answer_next(self) -> None:
        """Wait for a request and answer it. Raises EOFError if the other end has closed."""
        self.answer(self._channel.receive()["ask"])
