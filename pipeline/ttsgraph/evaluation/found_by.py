"""Origin of a graph: the part of a search that found it, as a field of the candidate and as text.

contest                   the contest of structured graphs found it
loop, iteration 3         a draw of the method's distribution, or its decoded graph
loop, iteration 3, edit   an edit of a graph, by the method's agent
baseline                  a plain graph outside the search
given                     provided before the search: by the user or an earlier search

Texts, tags and files that name the origin of a graph use these values.
"""

import re

CONTEST = "contest"
BASELINE = "baseline"
GIVEN = "given"
PATTERN = rf"^({CONTEST}|{BASELINE}|{GIVEN}|loop, iteration \d+(, edit)?)$"


def of_loop(iteration: int, edit: bool = False) -> str:
    """Return the value for an iteration of a method's loop; iteration 0 is the start of the
    loop.
    """
    return f"loop, iteration {iteration}{', edit' if edit else ''}"


def phrase(found_by: str, method: str) -> str:
    """Return a phrase for people that follows the name of a graph, such as `found by the contest`.
    For a record without an origin, the phrase names the method of the search.
    """
    if loop := re.match(r"loop, iteration (\d+)(.*)", found_by):
        return f"found by {method} (iteration {loop[1]}{', an edit' if loop[2] else ''})"
    words = {
        CONTEST: "found by the contest",
        BASELINE: "a baseline, which no search found",
        GIVEN: "given, not found",
    }
    return words.get(found_by, f"found in a search with {method}")
