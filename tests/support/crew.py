"""Two processes that answer each connection on one port with their number and the figures of both;
a program for its tests.
"""

import os
import sys
from collections.abc import Callable

from ttsgraph.base.errors import InputError
from ttsgraph.service.processes import serve_in, shared_socket


def serve_one(host: str, port: int, ready: Callable[[], None]) -> None:
    from ttsgraph.service.metrics import Metrics

    if "broken" in sys.argv:
        raise InputError("expected a name that is there")
    metrics = Metrics()
    with shared_socket(host, port) as listening:
        listening.listen(64)
        ready()
        while True:
            with listening.accept()[0] as connection:
                metrics.requests.labels("math", "200").inc()
                metrics.under_way.inc()
                connection.sendall(b"process %d\n" % os.getpid() + metrics.text())


if __name__ == "__main__":
    try:
        serve_in(2, serve_one, "127.0.0.1", 0, 1.0, lambda port: print(port, flush=True))
    except InputError as error:
        sys.exit(f"error: {error}")
