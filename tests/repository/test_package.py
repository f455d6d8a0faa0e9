"""What installing ttsgraph brings along, and that what the README names exists."""

import re
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_that_is_installed_with_it_is_torch():
    constraints = (ROOT / "requirements" / "constraints.txt").read_text().lower()
    assert not re.search(r"^(torch|vllm)", constraints, re.MULTILINE)
    always = [need for need in requires("ttsgraph") or [] if "extra ==" not in need]
    of_extras = [need for need in requires("ttsgraph") or [] if 'extra == "local"' not in need]
    for need in (*always, *of_extras):
        assert not re.match(r"(torch|vllm|transformers)\b", need)


def test_every_make_target_and_file_the_readme_names_exists():
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)`?", readme)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for module in set(re.findall(r"python -m ttsgraph_flows\.(\w+)", readme)):
        assert (ROOT / "flows" / "ttsgraph_flows" / f"{module}.py").exists()
    for path in set(re.findall(r"`((?:pipeline|profiles|flows)/[\w/.]*)`", readme)) - {
        "profiles/<name>.yaml"
    }:
        assert (ROOT / path).exists(), path
