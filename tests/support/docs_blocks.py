"""What the pages tell a reader to type, and which of it the tests don't run."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

from tests.support.project import ROOT, merged

ROOT_PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
NOT_RUN: dict[str, str] = yaml.safe_load(Path(__file__).with_name("docs_not_run.yaml").read_text())
"""Commands that the tests don't run, each with the reason."""
TITLE = re.compile(r'^(\w*)(?: title="([^"]*)")?$')


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page: where it begins, its language, and the file it says it is of."""

    page: str
    line: int
    language: str
    title: str | None
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block, without comments."""
        if self.language != "sh":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [
            " ".join(line.split())
            for line in (re.sub(r"(^|\s+)#.*$", "", line) for line in lines)
            if line.strip()
        ]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page; one that is not fenced has the language `indented`."""
    found = []
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text()):
        if token.type in ("fence", "code_block"):
            match = TITLE.match(token.info.strip()) if token.type == "fence" else None
            language, title = (match[1], match[2]) if match else ("indented", None)
            found.append(Block(page, (token.map or [0])[0] + 1, language, title, token.content))
    return found


def changed(path: Path, title: str, text: str) -> None:
    """Replace sections of a settings file by a text's, or, for "add to", add to them."""
    settings, wanted = (yaml.safe_load(each) for each in (path.read_text(), text))
    adds = title.startswith("add to ")
    path.write_text(yaml.safe_dump(merged(settings, wanted) if adds else settings | wanted))


def patched(folder: Path, diff: str) -> None:
    """Apply a diff of the file that its header names: each hunk where its old lines stand."""
    header, *hunks = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    path = folder / re.findall(r"^\+\+\+ b/(.*)$", header, re.MULTILINE)[0]
    text = path.read_text()
    for hunk in hunks:
        lines = hunk.splitlines()
        old, new = ("\n".join(x[1:] for x in lines if x[0] in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, f"{path}: expected one place with\n{old}"
        text = text.replace(old, new)
    path.write_text(text)
