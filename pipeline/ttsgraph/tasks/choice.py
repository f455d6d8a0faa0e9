"""Multiple choice: either each row has its own choices, which are answered by letter, or all
questions of a task share labels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import field_validator

from finalanswer import LETTERS, choice_in, label_in, letter_in, normalised
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.tasks import base


class ChoiceOptions(ClosedModel):
    """`choices`: labels shared by all questions of the task; without them each row has its own
    `choices`.
    """

    choices: tuple[str, ...] = ()

    @field_validator("choices")
    @classmethod
    def _told_apart(cls, choices: tuple[str, ...]) -> tuple[str, ...]:
        if choices and len({normalised(choice) for choice in choices}) < max(2, len(choices)):
            raise ValueError(
                f"expected at least two choices, all different, found {', '.join(choices)}"
            )
        return choices


class ChoiceTask(base.ReadTask):
    """Rows {question, choices, answer}, where the answer is a letter, an index starting at 0, or a
    choice's text; or rows {question, answer} whose answer is one of the shared labels.
    """

    name = "choice"
    instruction = "Choose one answer. Think step by step, then end with: The answer is (X)."
    same_answer = "the same letter"
    Options = ChoiceOptions
    read = staticmethod(letter_in)

    def __init__(self, options: ChoiceOptions | None = None) -> None:
        super().__init__(options)
        if choices := self.options.choices:
            self.instruction = f"Choose one of: {', '.join(choices)}. End with: Answer: <choice>"
            self.same_answer = "the same label"

    def parse(self, row: Mapping[str, Any], where: str) -> base.Question:
        """Convert a row to a question. Raises DataError if the answer is not among the choices."""
        text = base.text_field(row, base.QUESTION_FIELDS, "a question", where).strip()
        shared = self.options.choices
        expected = "a list of choices (or labels that all questions share: grading.choices)"
        choices = list(shared) or _choices_of(row, where, expected)
        given = base.text_field(row, base.ANSWER_FIELDS, "an answer", where).strip()
        given = given if shared else by_label(row.get("choices", row.get("options")), given)
        alike = [k for k, choice in enumerate(choices) if normalised(choice) == normalised(given)]
        letters = ", ".join(LETTERS[: len(choices)])
        if shared:
            answer = choices[alike[0]] if alike else None
            known = f"grading.choices ({', '.join(choices)})"
        else:
            answer = _letter_of(given, len(choices))
            if alike and (answer is None or given.isdecimal()):
                answer = LETTERS[alike[0]]
            known = f"{letters}, the indices 0 to {len(choices) - 1}, and the choices"
        if answer is None:
            raise DataError(f"{where}: expected an answer among {known}, found {given[:40]!r}")
        meta = {} if shared else {"choices": choices}
        return base.Question(base.row_id(row, self.name, text), text, answer, meta)

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

    def parse(self, row: Mapping[str, Any], where: str) -> base.Question:
        """Convert a row to a question. Raises DataError if the answer is not among the choices."""
        given = base.text_field(row, ("answer",), "an answer", where).strip()
        if given.isdecimal() and int(given) < len(LETTERS):  # also if the choices are numbers
            row = {**row, "answer": LETTERS[int(given)]}
        question = super().parse(row, where)
        choices = question.meta.get("choices") or ()
        name = base.row_id(row, self.name, "\n".join([question.text, *choices]))
        meta = {**question.meta, "subject": str(row.get("subject") or "")}
        return replace(question, id=name, meta=meta)


def _choices_of(row: Mapping[str, Any], where: str, expected: str) -> list[str]:
    raw = row.get("choices", row.get("options"))
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        raise base.missing_field(row, ("choices",), expected, where)
    choices = [text for _, text in labelled(raw)]
    if not 2 <= len(choices) <= len(LETTERS):
        raise DataError(f"{where}: expected 2 to {len(LETTERS)} choices, found {len(choices)}")
    return choices


def labelled(choices: Any) -> list[tuple[str, str]]:
    """Return the choices of a row as pairs of label ("" if it has none) and text. `choices` may be
    a list of strings or of objects {"label": ..., "text": ...}; one such object with a list of
    labels and a list of texts; or a mapping from labels to texts.
    """
    if isinstance(choices, Mapping) and not isinstance(choices.get("text"), list | tuple):
        return [(str(label), str(text)) for label, text in choices.items()]
    if isinstance(choices, Mapping):
        texts = choices["text"]
        labels = choices.get("label") or [""] * len(texts)
        return [(str(label), str(text)) for label, text in zip(labels, texts, strict=False)]
    pairs = [each if isinstance(each, Mapping) else {"text": each} for each in choices]
    return [(str(each.get("label", "")), str(each.get("text", each))) for each in pairs]


def by_label(choices: Any, given: str) -> str:
    """Return the letter of the choice whose label is this answer, or the answer unchanged if there
    is no such choice.
    """
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        return given
    labels = [label for label, _ in labelled(choices)]
    return LETTERS[labels.index(given)] if given in labels[: len(LETTERS)] else given


def _letter_of(given: str, count: int) -> str | None:
    """Return the letter that a row's answer gives, directly or as an index, or None if it gives
    none of the first `count` letters.
    """
    if len(given) == 1 and given.upper() in LETTERS[:count]:
        return given.upper()
    return LETTERS[int(given)] if given.isdecimal() and int(given) < count else None


base.register_task(ChoiceTask())
base.register_task(MmluTask())
