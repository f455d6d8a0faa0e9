"""`make bench`: measure every ratio in one run, print the ratios, and store them with a description
of the machine.

    python -m lab.benchmarks [NAME ...]     # all of BENCHMARKS, or only the named ones

The exit code is 1 if a bound does not hold.

To add a benchmark, write a module with `measure() -> list[Ratio]`, and add its name to BENCHMARKS.
"""

import json
import os
import platform
import sys
import time
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

BENCHMARKS = ("peers", "growth", "page", "service")
STORED = Path("reports/bench.json")


def machine() -> dict[str, Any]:
    """Return a description of this machine and its current load."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {
            name: metadata.version(name) for name in ("aiohttp", "numpy", "openai", "ttsgraph")
        },
    }


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(BENCHMARKS))
    if unknown:
        print(
            f"error: expected benchmarks from {', '.join(BENCHMARKS)}; found {unknown[0]!r}",
            file=sys.stderr,
        )
        return 2
    before = machine()
    rows = []
    for name in wanted or BENCHMARKS:
        for ratio in import_module(f"{__package__}.{name}").measure():
            row = {
                "name": ratio.name,
                "value": ratio.value,
                "bound": f"{ratio.rule} {ratio.bound:g}",
                "holds": ratio.holds,
                "details": ratio.details,
            }
            rows.append(row)
            mark = "holds" if ratio.holds else "FAILS"
            print(f"{mark}  {ratio.value:g} ({row['bound']})  {ratio.name}", flush=True)
    result = {"measured": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "machine": before, "ratios": rows}
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_text(json.dumps(result, indent=1) + "\n")
    print(f"stored in {STORED}")
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
