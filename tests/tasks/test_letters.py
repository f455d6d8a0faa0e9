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
Upon reflection, {L} is the answer I'd settle on.
Of the four, only {L} works.
Only {L} is consistent with the passage.
Only option {L} satisfies the condition.
{L} it is.
{L}, I think.
{L}, clearly.
I'm fairly sure it's {L}.
I am going to say {L}.
I'd say it's {L}.
I'd lean towards {L}.
I lean {L}.
My money is on {L}.
The one I would mark is {L}.
Mark {L}.
Mark option {L} on your sheet.
The answer's {L}.
the correct answer is {l}
the answer is option {l}
Answer = ({L})
ANSWER IS {L}
FINAL ANSWER: {L}
Final answer is ({L}).
Final choice: {L}
Final: {L}
Conclusion: {L}
Conclusion: The correct answer is {L}.
Verdict: {L}
Result: {L}
Therefore the answer: {L}
Therefore: {L}
So: {L}
=> {L}
-> {L}
→ {L}
∴ {L}
The best fit is {L}.
The closest option is {L}.
The only correct option is {L}.
The only valid choice is {L}.
The most accurate choice is {L}.
The most suitable option is {L}.
The most plausible answer is {L}.
The most reasonable answer would be {L}.
The most probable answer is {L}.
This makes {L} the correct answer.
This makes option {L} correct.
That makes {L} the best choice.
This points to {L}.
This means the answer is {L}.
This leads to option {L}.
This gives us {L}.
This is choice {L}.
This is answer {L}.
This is option ({L}).
That's {L}.
That would be {L}.
That would be option {L}.
We get option {L}.
Hence ({L}).
Thus ({L}).
Hence {L}.
Thus, {L}.
So ({L}).
So, the correct option is ({L}).
So the right choice has to be {L}.
Consequently, {L} is correct.
Accordingly, option {L} is the answer.
As a result, the answer is {L}.
In conclusion, {L}.
In conclusion, the correct answer is {L}.
In summary, option {L} is correct.
To conclude, {L} is right.
Overall, {L} is the best option.
All things considered, {L}.
After elimination, {L} remains.
By elimination, the answer is {L}.
By process of elimination, {L}.
By elimination: {L}.
Eliminating {N}, we are left with {L}.
We can rule out {N}, leaving {L}.
We eliminate {N}. {L} remains.
{N} is out. So {L}.
{N} can be excluded; the answer is {L}.
{N} is close, but {L} is better.
{N} is tempting, but the correct answer is {L}.
Although {N} seems plausible, {L} is the correct answer.
While {N} may look right, the answer is {L}.
Instead of {N}, choose {L}.
Rather than {N}, the answer is {L}.
At first I thought {N}, but it's {L}.
Initially {N} looks right. However, {L} is correct.
The answer is {N}... no, actually it's {L}.
The answer is {N}. Actually, no: the answer is {L}.
I first considered {N}. On reflection the answer is {L}.
Option {N} is incorrect because it's old. Option {L} is correct because it's new.
{N}: wrong. {L}: right.
{N} - incorrect\n{L} - correct
{N}) False\n{L}) True
- {N}: incorrect\n- {L}: correct
1. {N} is false.\n2. {L} is true.
Option {L} best describes this.
Option {L} accurately describes it.
Option {L} states that {T}, which is correct.
Option {L}, "{T}", is the correct one.
Option {L} ({T}) is correct.
Option {L} – {T}
Option {L}) {T}
Options: {L}
Choice ({L}): {T}
Choice {L}: {T}
Answer choice: {L}
Answer option: {L}
Answer letter: {L}
Correct letter: {L}
Selected answer: {L}
Chosen answer: {L}
My selection: {L}
Your answer: {L}
The answer is choice ({L}).
The answer is {L} – {T}.
The answer is {L} ({T}).
The answer is ({L}): {T}.
The answer is [{L}].
The answer is <{L}>.
The answer is {{{L}}}.
The answer is "{L}. {T}".
The answer is “{L}”.
The answer is *{L}*.
The answer is __{L}__.
The answer is ***{L}***.
The answer is: **({L}) {T}**
The answer is:\n\n({L}) {T}
The answer is:\n- {L}. {T}
The answer is:\n> {L}
The answer is\n\n### {L}
The answer is $({L})$.
The answer is \({L}\).
The answer is \[{L}\]
The answer is $\text{{({L})}}$.
The answer is $\textbf{{{L}}}$.
The answer is \boxed{{({L})}}.
$$\boxed{{\text{{({L}) {T}}}}}$$
\boxed{{\text{{Option {L}}}}}
\boxed{{\text{{Answer: {L}}}}}
\boxed{{ {L} }}
**\boxed{{{L}}}**
\fbox{{{L}}}
**Answer: ({L}) {T}**
**Correct Answer: {L}**
**Correct answer:** **{L}**
**Correct Option: ({L})**
**The correct answer is {L}.**
**The correct answer is: {L}. {T}**
### Answer: {L}
## Answer\n{L}
# {L}
**Answer**\n{L}
**Answer**: {L}
**Answer** – {L}
*Answer*: {L}
__Answer__: {L}
Answer\n{L}
Answer → {L}
Answer -> {L}
Answer >> {L}
Answer (letter only): {L}
Answer ({L}) {T}
Answer with the letter: {L}
Q: which? A: {L}
A: {L}. {T}
Assistant: {L}
<answer>{L}. {T}</answer>
<answer>The answer is {L}.</answer>
<final>{L}</final>
<final_answer>{L}</final_answer>
<ANSWER>{L}</ANSWER>
<choice>{L}</choice>
<|answer|>{L}
[[{L}]]
[ANSWER] {L}
[ANSWER]{L}[/ANSWER]
{{"choice": "{L}"}}
{{"final_answer": "{L}"}}
{{'answer': '{L}'}}
{{"answer":"({L})"}}
{{"answer": "{L}. {T}"}}
{{\n  "reasoning": "It fits.",\n  "answer": "{L}"\n}}
answer: "{L}"
"answer": "{L}"
- answer: {L}
letter: {L}
`{L}`
`{L}. {T}`
```{L}```
```text\n{L}\n```
{L}\n
\n\n{L}\n\n
{L}!
{L}?
{L};
{L},
{L} .
{L} :
{L}—{T}
{L} — {T}
{L} / {T}
{L} = {T}
{L}] {T}
({L}.) {T}
({L}):
({L}).
<{L}>
({l}) {T}
{l}) {T}
[{l}]
**{l}**
Option ({l}).
Answer: ({l}) {T}
The answer is ({l}).
It's ({l}).
I choose ({l}).
The answer that fits best is {L}.
The answer which is correct is {L}.
The option that is correct is {L}.
The option which best fits is {L}.
The choice that makes sense is {L}.
The statement that is true is {L}.
The statement that is not true is {L}.
The false statement is {L}.
The incorrect statement is {L}.
The exception is {L}.
The one that doesn't belong is {L}.
The correct sequence is given in {L}.
The correct order is shown in option {L}.
The correct pairing is {L}.
The correct formula is given by {L}.
The correct description is {L}.
The correct completion is {L}.
The true statement is {L}.
The right option: {L}
The right choice: ({L})
Right answer: {L}
Best answer: {L}
Best choice: {L}
Best option: {L}
Most likely: {L}
Likely {L}.
Surely {L}.
Certainly {L}.
Obviously {L}.
Clearly {L}.
Clearly, the answer is {L}.
It has to be {L}.
It should be {L}.
It would be {L}.
It is option {L}.
It is clearly {L}.
It's definitely {L}.
It is most likely {L}.
It looks like {L} is right.
It seems that {L} is the answer.
It seems {L} is correct.
It appears that the answer is {L}.
I'm inclined to say {L}.
I'm leaning toward {L}.
I am choosing option {L}.
I have chosen {L}.
I chose {L}.
I picked {L}.
I selected option {L}.
I vote for {L}.
I opt for {L}.
I settle on {L}.
I'll pick {L}.
I'll choose {L}.
I'll say {L}.
I will answer {L}.
I will select {L}.
I want to answer {L}.
I would select {L}.
I would pick ({L}).
I would guess {L}.
I would say the answer is {L}.
I would say that {L} is correct.
I believe it's {L}.
I believe it is ({L}).
I feel that {L} is right.
I conclude {L}.
I conclude that the answer is {L}.
I agree with {L}.
I know it's {L}.
We pick {L}.
We select {L}.
We conclude the answer is {L}.
You should choose {L}.
You should pick option {L}.
Pick {L}.
Select {L}.
Select option ({L}).
Go with {L}.
Going with {L}.
Let's choose {L}.
Let us pick {L}.
Looks like {L}.
Sounds like {L}.
Must be {L}.
Has to be {L}.
Guess: {L}
Gotta be {L}.
Correct is {L}.
Correct answer - {L}
Correct answer would be {L}.
Correct answer: option {L}
Correct answer: ({L}) {T}
Correct choice is {L}.
Correct option is {L}.
Correct response: {L}
Solution: ({L})
Solution: option {L}
Explanation: it fits. Answer: {L}
Reason: it fits.\nAnswer: {L}
Reasoning: {N} is too old.\nFinal answer: {L}
Step 1: look.\nStep 2: choose.\nAnswer: {L}
Step 3: Thus {L}.
Yes, {L} is correct.
No, it's {L}.
OK, {L}.
Okay, so the answer is {L}.
Well, {L}.
Hmm, I think {L}.
Great question! The correct answer is {L}.
Certainly! The answer is {L}.
Here is my answer: {L}
Here's the answer: {L}.
The answer you are looking for is {L}.
The answer I would give is {L}.
The answer in this case is {L}.
The answer for this question is {L}.
The answer of this question is {L}.
The answer to this multiple-choice question is {L}.
The answer to the above question is ({L}).
The answer, in my opinion, is {L}.
The answer, of course, is {L}.
The answer can only be {L}.
The answer could only be {L}.
The answer has to be {L}.
The answer will be {L}.
The answer might be {L}.
The answer is thus {L}.
The answer is indeed {L}.
The answer is simply {L}.
The answer is obviously {L}.
The answer is given by {L}.
The answer is given by option {L}.
The answer is found in {L}.
The answer is represented by {L}.
The answer is labeled {L}.
The answer is the option {L}.
The answer is the letter {L}.
The answer is option "{L}".
The answer is option '{L}'.
The answer is option **{L}**.
The answer is option {L}) {T}.
The answer is option {L}: {T}.
The answer is statement {L}.
The answer is both clear and simple: {L}.
The answer is {T}. So {L}.
The answer is {T}, i.e. {L}.
The answer is {T} ({L}).
The answer is {T}: option {L}.
{T} is right, so {L}.
{T} ({L})
{T}, {L}
{T}. Option {L}.
{T}, so the answer is {L}.
Because of that, {L}.
Since it fits, the answer is {L}.
Given this, {L} is correct.
From this we see that {L} is right.
Comparing these with the options, the match is {L}.
Checking the choices, {L} is right.
This is a question of biology. The answer is {L}.
A careful reading shows that the answer is {L}.
A good choice is {L}.
A quick check gives {L}.
I know a lot about this. {L}.
As a biologist, I choose {L}.
In a word: {L}
Respuesta: {L}
La respuesta es la {L}.
Réponse : {L}
La bonne réponse est {L}.
Antwort: {L}
Die Antwort ist {L}.
Risposta: {L}
La risposta corretta è {L}.
Resposta: {L}
A resposta correta é {L}.
Ответ: {L}
答案: {L}
答案为{L}
选{L}
选择{L}。
正确答案：{L}
答えは{L}です。
정답: {L}
정답은 {L}입니다.
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
It could be A or B.
It could be C or D.
A or B
C or D
A/B
C/D
A, B
C, D
A and B are both right.
C and D are both right.
Either A or B would do.
Either C or D would do.
I can't decide between A and B.
I can't decide between C and D.
The answer is A and B.
The answer is C and D.
The answers are A and B.
The answers are C and D.
Not C.
It isn't A.
It isn't C.
It's not A.
It's not C.
A is wrong.
C is wrong.
A is incorrect.
C is incorrect.
A is not the answer.
C is not the answer.
The answer cannot be A.
The answer cannot be C.
The answer is not (A).
The answer is not (C).
I'd rule out A.
I'd rule out C.
Neither A nor B.
Neither C nor D.
All of A, B are true.
All of C, D are true.
I don't think it's A.
I don't think it's C.
Definitely not A.
Definitely not C.
Anything but A.
Anything but C.
Everything except A.
Everything except C.
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
