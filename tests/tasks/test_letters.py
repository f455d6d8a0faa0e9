"""Every way of giving a letter is read, the same for each letter; what names none, or several, is
not.
"""

import pytest

from ttsgraph.tasks import get_task
from ttsgraph.tasks.letters import LETTERS, choice_in, letter_in

TEXTS = ("Paris", "the mitochondria", "12", "increase in b", "$x^2$")
# {L} the letter, {l} in lower case, {N} another one, {T} the text of the choice.
WAYS = r"""
{L}
{L}.
({L})
[{L}]
**{L}**
**({L})**
{l}
{l}.
({l})
{L})
{L}:
{L}. {T}
{L}) {T}
({L}) {T}
**{L}. {T}**
**{L}) {T}**
**{L}**: {T}
**{L}** - {T}
{L} - {T}
{L}: {T}
{L}, because of what was said.
{L} because the others are wrong.
{L}\n\nExplanation: the others are wrong.
{L}. {T}\n\nThis is because the text says so.
Answer: {L}
Answer: {L}.
Answer: ({L})
Answer: {l}
Answer: {l})
Answer: **{L}**
**Answer: {L}**
**Answer:** {L}
**Answer:** {L}) {T}
Answer:\n{L}
Answer:\n\n**{L}. {T}**
Answer - {L}
Answer is {L}
answer is {l}.
ANSWER: {L}
The answer is {L}.
The answer is ({L}).
The answer is ({L}) {T}.
The answer is {L}) {T}
The answer is: {L}
The answer is **{L}**.
The answer is option {L}.
The answer is option ({L}).
The answer is choice {L}
The answer is letter {L}.
The answer is $\boxed{{{L}}}$.
The answer is \boxed{{\text{{{L}}}}}
\boxed{{{L}}}
\boxed{{\textbf{{({L})}}}}
\boxed{{{L}. {T}}}
\boxed{{\text{{{L}) {T}}}}}
$\boxed{{\mathrm{{{L}}}}}$
The correct answer is option {L}.
The correct answer is: {L}) {T}
The correct answer is {L}.
The correct answer is therefore {L}.
The correct answer is \(\text{{{L}}}\).
The correct answer is "{L}".
The correct answer is '{L}'.
The correct answer to this question is {L}.
The correct answer here is {L}.
The correct answer would be {L}.
The correct choice is {L}.
The correct choice is ({L}) {T}.
The correct option is {L}.
The correct option is **{L}) {T}**.
Correct option: {L}
Correct answer: {L}
Correct choice: {L}
Correct: {L}
The right answer is {L}.
The best answer is {L}.
The best choice is {L}.
The best option here is {L}.
The final answer is {L}.
Final answer: {L}
Final Answer: ({L})
**Final Answer**\n\n{L}
### Final Answer\n**{L}**
Final answer:\n\[\boxed{{{L}}}\]
My answer is {L}.
My answer: {L}
My final answer is {L}.
My choice is {L}.
My pick would be {L}.
The answer would be {L}.
The answer should be {L}.
The answer must be {L}.
The answer seems to be {L}.
The most likely answer is {L}.
The most appropriate answer is {L}.
The answer, therefore, is {L}.
So the answer is {L}
Thus, the answer is {L}.
Therefore, the correct answer is ({L}).
Hence the answer is {L}.
Therefore, {L}.
So, {L}.
So {L} is the answer.
So it's {L}.
Thus option {L}.
Option {L} is correct.
Option {L} is the correct answer.
Option {L}
Option {L}.
Option {L}: {T}
Option ({L}) is correct.
Choice {L}.
Choice {L} is right.
{L} is correct.
{L} is the correct answer.
{L} is right.
{L} is the answer.
{L} is the best answer.
{L} is the most accurate.
{L} would be correct.
{L} must be the answer.
({L}) is correct.
({L}) is the correct answer.
**{L}** is correct.
"{L}" is correct.
{L}) {T} is correct.
{L}, {T}, is the correct answer.
Statement {L} is true.
Letter {L}
I choose {L}.
I would choose {L}.
I'd choose {L}
I'd go with {L}.
I'd go with {L}
I would go with option {L}.
I'll go with {L}.
I will go with ({L}).
I'm going with {L}.
Let's go with {L}.
I pick {L}.
I select {L}.
I think it's {L}.
I think it is {L}.
I think {L} is correct.
I think the answer is {L}.
I believe the answer is {L}.
I believe {L} is the best choice.
It's {L}.
It is {L}.
It must be {L}.
That leaves {L}.
This leaves us with option {L}.
This corresponds to option {L}.
This matches option {L}.
which is option {L}.
The answer is {T}, which is option {L}.
The correct answer is {T} (option {L}).
Not {N}, but {L}.
The answer is not {N} but {L}.
The answer is {L}, not {N}.
{N} is wrong, so the answer is {L}.
{N} is incorrect. {L} is correct.
It can't be {N}. It must be {L}.
The answer is ({N}). Wait, that is wrong. The answer is ({L}).
Definitely {L}.
Definitely {L}!
Probably {L}
Sure! {L}
Sure! The answer is {L}.
<think>Maybe {N}?</think>{L}
<think>\nPerhaps {N} is it.\n</think>\n\n{L}
<think>The answer is {N}.</think>\n\n**{L}**
<think>{N} is correct</think>\n\n({L})
<answer>{L}</answer>
<answer> ({L}) </answer>
{{"answer": "{L}"}}
{{"answer": "{L}", "reason": "because"}}
```json\n{{"answer": "{L}"}}\n```
```\n{L}\n```
The answer is `{L}`.
> {L}
- {L}
#### {L}
A: {L}
Ans: {L}
Ans. {L}
Solution: {L}
Response: {L}
Selected option: {L}
Selected: {L}
Choose {L}.
The answer is {L}\n\nQuestion: What is red?\nA. x\nB. y\nC. z\nD. w
Answer with reasoning: the text says so. Answer: {L}
Let's think step by step. {N} is not right as it is old. {L} fits best. The answer is {L}.
Looking at the options, {L} is the one that fits.
Among the options, {L} fits best.
The statement in {L} is correct.
The answer to the question is {L}.
The answer to this question is option {L}: {T}
Based on this, I would say {L}.
After considering all options, I conclude that {L} is correct.
答案是{L}
答案：{L}
正确答案是 {L}。
La respuesta correcta es {L}.
La réponse est {L}.
Die richtige Antwort ist {L}.
Die Antwort lautet ({L}).
Answer:{L}
Answer:({L})
Answer={L}
answer: {L})
The correct answer is:\n\n{L}. {T}
The correct answer is:\n\n**{L}) {T}**
The answer is\n{L}
Correct answer is {L}. {N} is wrong because it is old.
{L}\n\nThe correct answer is {L}.
A. w\nB. x\nC. y\nD. z\n\nThe answer is {L}.
A. w\nB. x\nC. y\nD. z\n\n{L}
A. w\nB. x\nC. y\nD. z\n{L}. {T}
A) Incorrect.\nB) Incorrect.\nSo the correct option is {L}.
（{L}）
"{L}"
'{L}'
“{L}”
{L}*
*{L}*
__{L}__
_{L}_
{L} ({T})
{L} is the only option that fits.
{L} is the most appropriate choice.
The answer is clearly {L}.
The answer is definitely {L}.
The answer is probably {L}.
The answer is most likely {L}.
I am confident that the answer is {L}.
Answer choice {L} is correct.
Answer choice {L}.
Answer {L}
Answer {L}.
Answer ({L})
(Answer: {L})
[Answer: {L}]
The answer: {L}
The answer: **{L}**
The correct response is {L}.
The solution is {L}.
The correct letter is {L}.
The letter of the correct answer is {L}.
The correct statement is {L}.
Hence, {L} is the correct choice.
Hence, option {L} is the right one.
Thus {L} is the right answer.
The one that is correct is {L}.
My guess is {L}.
I guess {L}.
If I had to choose, I'd say {L}.
I'd pick {L}.
I'd answer {L}.
I would answer {L}.
I'm choosing {L}
We choose {L}.
We can conclude that {L} is correct.
The correct answer is option {L}, {T}.
The correct answer is {L} - {T}.
The correct answer is {L}: {T}.
The correct answer is {L} because {N} is wrong.
The correct answer is {L} since {N} and the others are wrong.
"""
NONE = r"""
A cat sat on the mat
Because it rains
42
I don't know.
I think we need more information.
The answer is A or B.
Both A and C are correct.
A and B
The answer is either B or C.
It could be A, B, or C.
Not A.
The answer is not B.
The answer isn't C.
A and B are both correct.
None of the above.
A good question.
The answer is a number between 1 and 10.
A. x\nB. y\nC. z\nD. w
A is wrong. B is wrong.
Option A is false.
B is not correct.
"""


def lines(text):
    return [line.replace("\\n", "\n") for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("letter", LETTERS[:4])
def test_every_letter_is_read_in_every_way(letter):
    other = LETTERS[(LETTERS.index(letter) + 1) % 4]
    missed = {
        reply: letter_in(reply)
        for way in lines(WAYS)
        for text in TEXTS
        for reply in [way.format(L=letter, l=letter.lower(), T=text, N=other)]
        if letter_in(reply) != letter
    }
    assert missed == {}


@pytest.mark.parametrize("reply", lines(NONE))
def test_what_names_no_letter_or_several_is_not_read(reply):
    assert letter_in(reply) is None


@pytest.mark.parametrize(
    "reply",
    [
        "the mitochondria",
        "The answer is the mitochondria.",
        "Answer: The mitochondria",
        "C the mitochondria",
    ],
)
def test_the_text_of_a_choice_counts_where_no_letter_is_given(reply):
    choices = ["Paris", "a cell", "the mitochondria", "the mitochondria wall"]
    assert letter_in(reply) is None
    assert choice_in(reply, choices) == "C"
    row = {"question": "q", "choices": choices, "answer": 2}
    for kind in ("mmlu", "choice"):
        assert get_task(kind).grade(get_task(kind).parse(row, "here"), reply)
