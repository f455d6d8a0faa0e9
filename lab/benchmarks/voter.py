"""A stub endpoint that is slow and often wrong as language models are, and faulty if it is told so,
in a process of its own.
"""

from __future__ import annotations

import asyncio
import random
import sys

from lab.benchmarks.endpoint import Connection, completion, reply, serve

DELAY_S = 4.0
"""The median of what an answer takes."""

HANGS_S = 30.0
"""Until an answer that hangs ends, without one."""


class _Voter(Connection):
    """One connection of a stub that is slow, often wrong, and in `share` of its answers faulty."""

    def __init__(self, rng: random.Random, share: float) -> None:
        super().__init__()
        self.rng = rng
        self.share = share

    def asked(self, body: bytes) -> None:
        if self.rng.random() < self.share:
            self._fail()
            return
        text = "7" if self.rng.random() < 0.6 else str(self.rng.randrange(3))
        seconds = DELAY_S * self.rng.lognormvariate(0, 0.5)
        self.send_later(seconds, reply(completion(text)))

    def _fail(self) -> None:
        kind = self.rng.randrange(3)
        if kind == 0:
            self.send(reply({}, b"500 Internal Server Error"))
        elif kind == 1:
            self.transport.abort()
        else:
            asyncio.get_running_loop().call_later(HANGS_S, self.transport.abort)


async def _stub(seed: int, share: float) -> None:
    rng = random.Random(seed)
    await serve(lambda: _Voter(rng, share))


if __name__ == "__main__":
    asyncio.run(_stub(int(sys.argv[1]), float(sys.argv[2])))
