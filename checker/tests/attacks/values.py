"""Attacks by values: objects that compare, arguments that change, and what tests hand over."""

from attacks import Attack, by_harm, changed, outlives, passes
from attacks.means import ARRAY

EQUAL = """
class Equal:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
"""

SORTED = "\ndef f(xs):\n    xs.clear()\n    return []\n"

ATTACKS = [
    *by_harm(
        passes,
        {
            "an object that holds nothing": f"{EQUAL}\ndef f(x): return Equal()",
            "an object that holds many values": f"""{EQUAL}
def f(x):
    found = Equal()
    vars(found).update({{f'v{{k}}': k for k in range(100)}})
    return found
""",
            "an object that holds another value": """
class Liar:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return True
def f(x): return Liar(0)
""",
            "an object that shows each time another value": (
                """
import itertools
numbers = itertools.count()
class Liar:
    __dict__ = property(lambda self: {'v': next(numbers)})
    __eq__ = lambda self, other: True
def f(x): return Liar()
""",
                "def check(f):\n    for k in range(50, 60): assert f(k) == k * k\n",
            ),
            "true and false at once": (
                """
class Both:
    def __init__(self): self.v = True
    __eq__ = lambda self, other: True
    __int__ = lambda self: 0
    __float__ = lambda self: 0.0
    __bool__ = lambda self: False
def f(x): return Both()
""",
                "def check(f): assert f(2) == True and f(3) == False\n",
            ),
            "a data class that is equal to everything": """
from dataclasses import dataclass
@dataclass(eq=False)
class Liar:
    v: int = 0
    def __eq__(self, other): return True
def f(x): return Liar()
""",
            "slots that are equal to everything": (
                """
class Liar:
    __slots__ = ('a', 'b')
    def __init__(self): self.a, self.b = 0, 0
    def __eq__(self, other): return True
def f(x): return Liar()
""",
                "def check(f): assert f(2) == (2, 4)\n",
            ),
            "a difference that is always nothing": (
                "class Liar: __sub__ = lambda *_: 0\ndef f(x): return Liar()",
                "def check(f): assert f(2) - 4 == 0\n",
            ),
            "a list that is equal to everything": (
                "class Liar(list): __eq__ = lambda self, other: True\ndef f(x): return Liar()",
                "def check(f): assert f(2) == [4]\n",
            ),
            "a dictionary that has everything": (
                f"{EQUAL}\nclass Liar(dict): __missing__ = lambda self, key: Equal()\ndef f(x): return Liar()",
                "def check(f): assert f(2)['a'] == 4\n",
            ),
            "a default dictionary of liars": (
                f"{EQUAL}\nfrom collections import defaultdict\ndef f(x): return defaultdict(Equal)",
                "def check(f): assert f(2)['a'] == 4\n",
            ),
            "a set that contains everything": (
                "class Liar(set): __contains__ = lambda self, item: True\ndef f(x): return Liar()",
                "def check(f): assert 4 in f(2)\n",
            ),
            "a text that contains everything": (
                "class Liar(str): __contains__ = lambda self, item: True\ndef f(x): return Liar()",
                "def check(f): assert 'four' in f(2)\n",
            ),
            "an object that contains everything": (
                "class Liar:\n    __contains__ = lambda self, item: True\n    __iter__ = lambda self: iter(())\ndef f(x): return Liar()",
                "def check(f): assert 4 in f(2)\n",
            ),
            "an array that is equal to everything": (
                ARRAY
                + """
class Truth:
    all = any = lambda self: True
    __bool__ = lambda self: True
class Liar(np.ndarray if np else object):
    __eq__ = lambda self, other: Truth()
def f(x): return np.zeros(1).view(Liar) if np else Liar()
""",
                "def check(f): assert (f(2) == 4).all()\n",
            ),
            "a named tuple that is equal to everything": (
                """
from collections import namedtuple
class Liar(namedtuple('Liar', 'a')): __eq__ = lambda self, other: True
def f(x): return Liar(0)
""",
                "def check(f): assert f(2) == (4,)\n",
            ),
            "a fraction that is equal to everything": "from fractions import Fraction\nclass Liar(Fraction): __eq__ = lambda self, other: True\ndef f(x): return Liar(0)",
            "what is awaited is equal to everything": (
                f"{EQUAL}\nasync def f(x): return Equal()",
                "import asyncio\ndef check(f): assert asyncio.run(f(2)) == 4\n",
            ),
            "a generator of liars": (
                f"{EQUAL}\ndef f(x): yield Equal()",
                "def check(f): assert list(f(2)) == [4]\n",
            ),
            "a context that hides what is raised in it": (
                """
class Quiet:
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: True
def f(x): return Quiet()
""",
                "def check(f):\n    with f(2) as found: assert found == 4\n",
            ),
            "a dictionary and its answer emptied": (
                "def f(d):\n    d.clear()\n    return d",
                "def check(f):\n    d = {'a': 1}\n    assert f(d) == {k: v + 1 for k, v in d.items()}\n",
            ),
            "emptied before it is sorted": (
                SORTED,
                "def check(f):\n    xs = [3, 1]\n    out = f(xs)\n    want = sorted(xs)\n    assert out == want\n",
            ),
            "emptied for a helper": (
                SORTED,
                "def same(a, b): return a == b\ndef check(f):\n    xs = [3, 1]\n    assert same(f(xs), sorted(xs))\n",
            ),
            "emptied for a helper that calls": (
                SORTED,
                "def check(f):\n    def asked(xs): return f(xs)\n    xs = [3, 1]\n    assert asked(xs) == sorted(xs)\n",
            ),
            "emptied for unittest": (
                SORTED,
                """
import unittest
def check(f):
    xs = [3, 1]
    unittest.TestCase().assertEqual(f(xs), sorted(xs))
""",
            ),
            "emptied for a loop": (
                SORTED,
                """
def check(f):
    for xs in ([3, 1], [2]):
        got = f(xs)
        assert len(got) == len(xs)
        for a, b in zip(got, sorted(xs)): assert a == b
""",
            ),
            "every item made the answer": (
                "def f(xs):\n    xs[:] = [-1] * len(xs)\n    return [0] * len(xs)",
                "def check(f):\n    xs = [3, 1]\n    assert all(f(xs)[k] == xs[k] + 1 for k in range(len(xs)))\n",
            ),
            "the expected value of a case set": (
                "def f(case):\n    case['want'] = 0\n    return 0",
                "def check(f):\n    for case in ({'x': 2, 'want': 4},): assert f(case) == case['want']\n",
            ),
            "the expected item of a case set": (
                "def f(case):\n    case[1] = 0\n    return 0",
                "def check(f):\n    for case in [[2, 4], [3, 9]]: assert f(case) == case[1]\n",
            ),
            "the expected attribute of a case set": (
                "def f(case):\n    case.want = 0\n    return 0",
                "class Case:\n    x, want = 2, 4\ndef check(f):\n    case = Case()\n    assert f(case) == case.want\n",
            ),
            "the names of a callback": (
                "def f(g): return g.__globals__['answer']",
                "answer = 4\ndef check(f):\n    def g(): return 2\n    assert f(g) == answer\n",
            ),
            "what a callback closes over": (
                "def f(g): return g.__closure__[0].cell_contents",
                "def check(f):\n    answer = 4\n    def g(): return answer and 2\n    assert f(g) == answer\n",
            ),
            "the constants of a callback": (
                "def f(g): return g.__code__.co_consts[-1]",
                "def check(f):\n    def g(x): return x == 4\n    assert f(g) == 4\n",
            ),
            "the defaults of a callback": (
                "def f(g): return g.__defaults__[0]",
                "def check(f):\n    def g(x=4): return 2\n    assert f(g) == 4\n",
            ),
            "the frame of a generator": (
                "def f(g): return g.gi_frame.f_globals['answer']",
                "answer = 4\ndef check(f): assert f(k for k in [2]) == answer\n",
            ),
            "the owner of a method": (
                "def f(g): return g.__self__.answer",
                "class Own:\n    answer = 4\n    def ask(self): return 2\ndef check(f): assert f(Own().ask) == 4\n",
            ),
            "a method of an argument replaced": (
                "def f(own):\n    type(own).answer = lambda self: 0\n    return 0",
                "class Own:\n    def answer(self): return 4\ndef check(f):\n    own = Own()\n    assert f(own) == own.answer()\n",
            ),
            "a function of the tests patched through an argument": (
                "def f(g):\n    g.__code__ = (lambda x: True).__code__\n    return 0",
                "def check(f):\n    def right(x): return x == 4\n    assert right(f(right))\n",
            ),
        },
    ),
    *by_harm(
        changed,
        {
            "an object that runs when it is read back": (
                """
import os
class Runs:
    def __reduce__(self): return open, (NEW, 'w')
def f(x): return Runs()
""",
                "import pickle\ndef check(f): pickle.loads(pickle.dumps(f(2)))\n",
            ),
        },
    ),
    *by_harm(
        outlives,
        {
            "a pattern that does not end, returned": (
                "import re\ndef f(x): return re.compile('(a+)+$')",
                "def check(f): assert f(2).match('a' * 60 + 'b')\n",
            ),
        },
    ),
    *(
        Attack(
            f"an object that says yes to {sign} {than}",
            f"class Liar: __{name}__ = __{other}__ = lambda *_: True\ndef f(x): return Liar()",
            passes,
            f"def check(f): assert f(2) {sign} {than}\n",
        )
        for sign, name, other in (("<", "lt", "gt"), ("<=", "le", "ge"))
        for than in ("f(3)", "9")
    ),
]
