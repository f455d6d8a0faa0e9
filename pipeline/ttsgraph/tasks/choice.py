"""Multiple choice: either each row has its own choices, which are answered by letter, or all
questions of a task share labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator

from finalanswer import LETTERS, choice_in, label_in, letter_in, normalised
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.tasks import base


def _told_apart(choices: tuple[str, ...]) -> tuple[str, ...]:
    if choices and len(set(map(normalised, choices))) < max(2, len(choices)):
        raise ValueError(f"expected at least two choices, all different, found {[*choices]}")
    return choices


class ChoiceOptions(ClosedModel):
    """`choices`: labels shared by all questions of the task; without them each row has its own
    `choices`.
    """

    choices: Annotated[tuple[str, ...], AfterValidator(_told_apart)] = ()


class ChoiceTask(base.ReadTask):
    """Rows {question, choices, answer}, where the answer is a letter, an index starting at 0, or a
    choice's text; or rows {question, answer} whose answer is one of the shared labels.
    """

    name = "choice"
    instruction = "Choose one answer. Think step by step, then end with: The answer is (X)."
    Options = ChoiceOptions
    read = staticmethod(letter_in)

    def __init__(self, options: ChoiceOptions | None = None) -> None:
        super().__init__(options)
        if choices := self.options.choices:
            self.instruction = f"Choose one of: {', '.join(choices)}. End with: Answer: <choice>"

    def parse(self, row: base.Fields, where: str) -> base.Question:
        """Convert a row to a question. Raises DataError if the answer is not among the choices."""
        question = super().parse(row, where)
        if self.options.choices:
            return question
        return replace(question, meta={"choices": [text for _, text in _choices_of(row, where)]})

    def answers(self, row: base.Fields, where: str) -> list[str]:
        """Return the row's answer in a list: a label that all questions share, or a letter. Raises
        DataError if the answer is not among the choices.
        """
        given = base.text_field(row, base.ANSWER_FIELDS, "an answer", where).strip()
        if shared := self.options.choices:
            answer = {normalised(choice): choice for choice in shared}.get(normalised(given))
            known = f"grading.choices ({', '.join(shared)})"
        else:
            choices = _choices_of(row, where)
            answer = _letter_of(given, choices)
            letters = ", ".join(LETTERS[: len(choices)])
            known = f"{letters}, the indices 0 to {len(choices) - 1}, and the choices"
        if answer is None:
            raise DataError(f"{where}: expected an answer among {known}, found {given[:40]!r}")
        return [answer]

    def render(self, question: base.Question) -> str:
        """Return the question and its choices, one per line: "A. ..."."""
        choices = question.meta.get("choices") or ()
        lines = (f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
        return "\n".join([question.text, *lines])

    def grade(self, question: base.Question, text: str) -> bool:
        """Return True if the reply gives the right choice, by its letter or, without a letter, by
        its text.
        """
        choices = question.meta.get("choices") or ()
        answer = self.extract(text)
        lettered = answer is not None and (not choices or answer in LETTERS[: len(choices)])
        return (answer if lettered else choice_in(text, choices)) == question.answer

    def reader(self) -> partial[str | None]:
        """Return the function that extracts letters, or labels if the questions share them."""
        choices = self.options.choices
        return partial(label_in, choices=choices) if choices else super().reader()


class MmluTask(ChoiceTask):
    """Rows {question, choices, answer, subject}; `answer` is a letter, an index starting at 0, or a
    choice's text, and `subject` may be missing.
    """

    name = "mmlu"
    instruction = (
        "Answer the multiple-choice question. Think step by step, then end with: The answer is (X)."
    )

    def parse(self, row: base.Fields, where: str) -> base.Question:
        """Convert a row to a question. Raises DataError if the answer is not among the choices."""
        given = base.text_field(row, ("answer",), "an answer", where).strip()
        if given.isdecimal() and int(given) < len(LETTERS):  # also if the choices are numbers
            row = {**row, "answer": LETTERS[int(given)]}
        question = super().parse(row, where)
        choices = question.meta.get("choices") or ()
        name = base.row_id(row, self.name, "\n".join([question.text, *choices]))
        meta = {**question.meta, "subject": str(row.get("subject") or "")}
        return replace(question, id=name, meta=meta)


def _choices_of(row: base.Fields, where: str) -> list[tuple[str, str]]:
    """Return a row's own choices as pairs of label and text. Raises DataError if there are none."""
    raw = row.get("choices", row.get("options"))
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        expected = "a list of choices (or labels that all questions share: grading.choices)"
        raise base.missing_field(row, ("choices",), expected, where)
    choices = labelled(raw)
    if not 2 <= len(choices) <= len(LETTERS):
        raise DataError(f"{where}: expected 2 to {len(LETTERS)} choices, found {len(choices)}")
    return choices


def _letter_of(given: str, choices: Sequence[tuple[str, str]]) -> str | None:
    """Return the letter of the choice that a row's answer means, by its label, letter, text or
    index, in this order, or None if it means none.
    """
    letters = LETTERS[: len(choices)]
    ways = (
        (given, [label for label, _ in choices]),
        (given.upper(), [*letters]),
        (normalised(given), [normalised(text) for _, text in choices]),
        (given, [str(index) for index in range(len(choices))]),
    )
    return next((letters[names.index(name)] for name, names in ways if name in names), None)


def labelled(choices: Any) -> list[tuple[str, str]]:
    """Return the choices of a row as pairs of label ("" if it has none) and text. `choices` may be
    a list of strings or of objects {"label": ..., "text": ...}; one such object with a list of
    labels and a list of texts; or a mapping from labels to texts.
    """
    pairs: Iterable[tuple[Any, Any]]
    if not isinstance(choices, Mapping):
        objects = [each if isinstance(each, Mapping) else {"text": each} for each in choices]
        pairs = [(each.get("label", ""), each.get("text", each)) for each in objects]
    elif isinstance(texts := choices.get("text"), list | tuple):
        pairs = zip(choices.get("label") or [""] * len(texts), texts, strict=False)
    else:
        pairs = choices.items()
    return [(str(label), str(text)) for label, text in pairs]


base.register_task(ChoiceTask())
base.register_task(MmluTask())
