"""Which part of a search a graph is from, as a field of the candidate, and in words.

contest                   the contest of structured graphs found it
loop, iteration 3         a draw of the method's distribution, or what it decoded to, then
loop, iteration 3, edit   an edit of a graph, by the method's agent
baseline                  a plain graph that no search found
given                     it was there before: the user's own, or what an earlier search found

What says who found a graph, in a text, a tag or a file, says it by these.
"""

import re

CONTEST = "contest"
BASELINE = "baseline"
GIVEN = "given"
PATTERN = rf"^({CONTEST}|{BASELINE}|{GIVEN}|loop, iteration \d+(, edit)?)$"


def of_loop(iteration: int, edit: bool = False) -> str:
    """Of an iteration of a method's loop; iteration 0 is its start."""
    return f"loop, iteration {iteration}{', edit' if edit else ''}"


def in_loop(found_by: str) -> bool:
    """Whether a method's own loop found it."""
    return found_by.startswith("loop")


def phrase(found_by: str, method: str) -> str:
    """For people, after what was found: `found by the contest`. Where it is not known, as of
    records from before there was such a field, it says in which search.
    """
    if in_loop(found_by):
        iteration, edit = re.match(r"loop, iteration (\d+)(.*)", found_by).groups()  # type: ignore[union-attr]
        return f"found by {method} (iteration {iteration}{', an edit' if edit else ''})"
    words = {
        CONTEST: "found by the contest",
        BASELINE: "a baseline, which no search found",
        GIVEN: "given, not found",
    }
    return words.get(found_by, f"found in a search with {method}")
