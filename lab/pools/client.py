"""Client that answers from a table."""

import re

import numpy as np

from lab.pools.tables import LENGTHS, Table
from ttsgraph.base.arrays import IntArray
from ttsgraph.models.client import Client, Completion, Request

NUMBERS = 10
"""Size of the range of numbers that is reserved for the replies to each question."""

FIRST = 100_000
_MARK = re.compile(r"\n\nThe mark (\S+) opens and closes each quotation")
_BOXED = re.compile(r"\\boxed\{(\d+)\}")


def number_of(place: int, reply: int) -> int:
    """Return the number that represents a reply to the question at this index in a table."""
    return FIRST + NUMBERS * place + reply


class TableClient(Client):
    """Client whose models answer from a table; equal requests get equal answers."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._places = {text: place for place, text in enumerate(table.sheet.texts)}

    def begin(self, request: Request) -> Completion:
        """Return the table's reply, as text with a number or as unreadable text, and the token
        counts from the table.
        """
        table = self.table
        asked, *marked = _MARK.split(request.messages[-1].content)
        place = self._places[asked]
        read = self._read(place, *marked) if marked else []
        key = request.key()
        draws = np.array([[int(key[k : k + 16], 16) / 16**16] for k in (0, 16, 32)])
        (reply,) = table.reply(request.model, draws, read, np.array([place])).tolist()
        number = number_of(place, reply)
        text = "I can't say." if reply < 0 else f"The answer is \\boxed{{{number}}}."
        prompt = table.sheet.prompt[place] + len(read) * LENGTHS.generated_tokens
        written = table.sheet.written[table.place[request.model], place]
        return Completion(text, round(prompt), max(1, round(written)), 0.2)

    def _read(self, place: int, mark: str, rest: str) -> list[IntArray]:
        """Return the replies quoted in a request, each as an array of one element."""
        found = [_BOXED.search(quoted) for quoted in rest.split(mark)[1::2]]
        numbers = [-1 if each is None else int(each[1]) - number_of(place, 0) for each in found]
        return [np.array([number]) for number in numbers]
