"""A server with few files, for tests of what many connections do to it:
`python -m tests.support.besieged FILES POOL`.

It wants the key of TTSGRAPH_API_KEY, and logs as `ttsgraph serve` does.
"""

from __future__ import annotations

import resource
import sys

from tests.support.service import NAME, Shelf, graph_of, profile_of
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.service.server import serve
from ttsgraph.settings.service import ServiceSettings

if __name__ == "__main__":
    files = int(sys.argv[1])
    pool = sys.argv[2]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    version = Deployed("math", graph_of("assistant"), profile_of(pool), (), "3")
    serve(Shelf(math_champion=version), [NAME], ServiceSettings(port=0))
