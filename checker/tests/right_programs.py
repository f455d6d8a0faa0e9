"""Programs that a careful person would call right, each with its tests: what they use, what they
return, and what their tests hand to them.

`f` is the function that is asked for. All of them pass in one interpreter without any limit.
"""

from __future__ import annotations

from cases import SQUARES

USES = {
    "a thread": """
import threading
def f(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x * x))
    thread.start(); thread.join()
    return found[0]
""",
    "threads that wait for each other": """
import threading, queue
def f(x):
    given, taken = queue.Queue(), queue.Queue()
    def work():
        while (item := given.get()) is not None: taken.put(item * x)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    given.put(x); given.put(None)
    thread.join()
    return taken.get(timeout=5)
""",
    "a thread with a large stack": """
import sys, threading
sys.setrecursionlimit(100_000)
threading.stack_size(64 << 20)
def f(x):
    def down(k): return 0 if k == 0 else 1 + down(k - 1)
    found = []
    thread = threading.Thread(target=lambda: found.append(down(20_000)))
    thread.start(); thread.join()
    return x * x if found == [20_000] else None
""",
    "a pool of threads": """
from concurrent.futures import ThreadPoolExecutor
def f(x):
    with ThreadPoolExecutor(max_workers=8) as pool: return sum(pool.map(lambda _: x, range(x)))
""",
    "multiprocessing's pool of threads": """
from multiprocessing.pool import ThreadPool
def f(x):
    with ThreadPool(4) as pool: return sum(pool.map(lambda _: x, range(x)))
""",
    "asyncio.run": """
import asyncio
async def square(x):
    await asyncio.sleep(0)
    return x * x
def f(x): return asyncio.run(square(x))
""",
    "asyncio.gather and timeouts": """
import asyncio
async def one(x):
    await asyncio.sleep(0.01)
    return x
async def all_of(x):
    return sum(await asyncio.wait_for(asyncio.gather(*(one(x) for _ in range(x))), timeout=5))
def f(x): return asyncio.run(all_of(x))
""",
    "asyncio.to_thread": """
import asyncio
async def main(x): return await asyncio.to_thread(lambda: x * x)
def f(x): return asyncio.run(main(x))
""",
    "a loop in a thread": """
import asyncio, threading
async def square(x): return x * x
def f(x):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    found = asyncio.run_coroutine_threadsafe(square(x), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(); loop.close()
    return found
""",
    "a temporary folder": """
import os, tempfile
def f(x):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'number')
        with open(path, 'w') as file: file.write(str(x))
        with open(path) as file: return int(file.read()) ** 2
""",
    "a file of its own": """
def f(x):
    with open('numbers.txt', 'w') as file: print(*[x] * x, sep='\\n', file=file)
    return sum(int(line) for line in open('numbers.txt'))
""",
    "a pickled data class": """
from __future__ import annotations
import copy, pickle
from dataclasses import dataclass, field
@dataclass
class Number:
    value: int
    more: list[int] = field(default_factory=list)
def f(x):
    number = copy.deepcopy(pickle.loads(pickle.dumps(Number(x, [x]))))
    return number.value * number.more[0]
""",
    "a pickled enumeration and named tuple": """
import enum, pickle
from collections import namedtuple
Pair = namedtuple('Pair', 'a b')
class Colour(enum.Enum): RED = 1
def f(x):
    pair, colour = pickle.loads(pickle.dumps((Pair(x, x), Colour.RED)))
    return pair.a * pair.b if colour is Colour.RED else 0
""",
    "hints that are read": """
from __future__ import annotations
import dataclasses, typing
@dataclasses.dataclass(slots=True)
class Number:
    value: int
    of: typing.ClassVar[int] = 1
def f(x):
    assert typing.get_type_hints(Number)['value'] is int
    return Number(x).value ** 2
""",
    "input() at the end": """
def f(x): return x * x
number = int(input('A number: '))
print(f(number))
""",
    "a main block": """
import sys
def f(x): return x * x
def main():
    for line in sys.stdin: print(f(int(line)))
if __name__ == '__main__':
    main()
""",
    "a long function": "def f(x):\n    y = 0\n"
    + "".join(f"    y += x if {k} < x else 0\n" for k in range(800))
    + "    return y\n",
    "a decorator with a cache": """
from functools import lru_cache, wraps
def counted(function):
    @wraps(function)
    def inner(*arguments): return function(*arguments)
    return inner
@counted
@lru_cache(maxsize=None)
def f(x): return x * x
""",
    "a partial function": "from functools import partial\nf = partial(pow, exp=2)\n",
    "an object that is called": """
class Square:
    def __call__(self, x): return x * x
f = Square()
""",
    "a generator that is sent to": """
def sums():
    total = 0
    while True: total += yield total
def f(x):
    adder = sums()
    next(adder)
    for _ in range(x - 1): adder.send(x)
    return adder.send(x)
""",
    "a random generator and a clock": """
import random, time, datetime
def f(x):
    random.seed(1); random.shuffle(list(range(9))); time.sleep(0.001); datetime.datetime.now()
    return x * x
""",
    "local names that evaluate": "def f(x): return eval('x * x', {'x': x})\n",
    "a subclass of a number": """
class Number(int): pass
def f(x): return Number(x * x)
""",
    "a database in memory": """
import sqlite3
def f(x):
    base = sqlite3.connect(':memory:')
    return base.execute('select ? * ?', (x, x)).fetchone()[0]
""",
}
"""What squares a number, by what it uses."""

RETURNS = {
    "a default dictionary that goes on": (
        "from collections import defaultdict\ndef f(x):\n    d = defaultdict(list)\n"
        "    d['a'].append(x)\n    return d",
        "d = f(1)\n    assert d['a'] == [1] and d['b'] == [] and dict(d) == {'a': [1], 'b': []}",
    ),
    "data classes": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n"
        "    x: int\n    y: list[int]\ndef f(x): return P(x, [x])",
        "assert f(1) == f(1) and f(1) != f(2) and f(1).y == [1] and repr(f(1)) == 'P(x=1, y=[1])'",
    ),
    "an object that equals a number": (
        "class Number:\n    def __init__(self, n): self.n = n\n"
        "    def __eq__(self, other): return self.n == getattr(other, 'n', other)\n"
        "    def __hash__(self): return hash(self.n)\ndef f(x): return Number(x * x)",
        "assert f(3) == 9 and 4 == f(2) and f(2) != 5 and [f(1), f(2)] == [1, 4]",
    ),
    "a list of its own": (
        "class Items(list):\n    def total(self): return sum(self)\ndef f(x): return Items(range(x))",
        "assert f(3) == [0, 1, 2]",
    ),
    "a linked list that compares": (
        "class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\n"
        "    def __eq__(self, other): return other is not None and (self.v, self.next) == (other.v, other.next)\n"
        "def f(xs):\n    head = None\n    for x in reversed(xs): head = Node(x, head)\n    return head",
        "assert f([1, 2]) == f([1, 2]) and f([1, 2]) != f([1, 3]) and f([1, 2]).next.v == 2",
    ),
    "an array": (
        "from array import array\ndef f(x): return array('i', range(x))",
        "from array import array\n    assert f(3) == array('i', [0, 1, 2]) and f(2).tolist() == [0, 1]",
    ),
    "objects that compare and add": (
        "from functools import total_ordering\n@total_ordering\nclass V:\n    def __init__(self, a): self.a = a\n"
        "    def __eq__(self, other): return self.a == other.a\n    def __lt__(self, other): return self.a < other.a\n"
        "    def __add__(self, other): return V(self.a + other.a)\ndef f(x): return V(x)",
        "assert f(1) < f(2) <= f(2) and sorted([f(3), f(1)])[0] == f(1) and f(1) + f(2) == f(3)",
    ),
    "a path": (
        "from pathlib import Path\ndef f(x): return Path('a') / x",
        "from pathlib import Path\n    assert f('b') == Path('a/b') and f('c.txt').suffix == '.txt'",
    ),
    "a simple namespace": (
        "from types import SimpleNamespace\ndef f(x): return SimpleNamespace(a=x, b=[x])",
        "from types import SimpleNamespace\n    assert f(1) == SimpleNamespace(a=1, b=[1]) and f(2).b == [2]",
    ),
    "user's collections": (
        "from collections import UserDict\nclass D(UserDict): pass\ndef f(x): return D(a=x)",
        "assert f(1)['a'] == 1 and dict(f(2)) == {'a': 2} and f(3) == {'a': 3}",
    ),
    "what its documentation says": (
        "from functools import lru_cache\n@lru_cache\ndef f(x):\n    'Doubles.'\n    return 2 * x",
        "assert f(2) == f(2) == 4 and f.__doc__ == 'Doubles.' and f.cache_info().hits == 1",
    ),
    "a coroutine": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x * x",
        "import asyncio\n    assert asyncio.run(f(3)) == 9 and asyncio.iscoroutine(c := f(1)) and asyncio.run(c) == 1",
    ),
    "a generator that is sent to": (
        "def f():\n    total = 0\n    while True:\n        total += yield total",
        "g = f()\n    assert next(g) == 0 and g.send(3) == 3 and g.send(4) == 7\n    g.close()\n    assert list(g) == []",
    ),
    "a class to be used": (
        "class f:\n    def __init__(self, most): self.most, self.items = most, {}\n"
        "    def __setitem__(self, k, v):\n        self.items[k] = v\n"
        "        while len(self.items) > self.most: del self.items[next(iter(self.items))]\n"
        "    def __getitem__(self, k): return self.items[k]\n    def __delitem__(self, k): del self.items[k]\n"
        "    def __len__(self): return len(self.items)\n    def get(self, k): return self.items.get(k, -1)",
        "c = f(2)\n    c['a'] = 1; c['b'] = 2; c['c'] = 3\n    assert c.get('a') == -1 and c['c'] == 3 and len(c) == 2\n"
        "    del c['b']\n    assert c.get('b') == -1",
    ),
    "a decorator": (
        "import functools\ndef f(function):\n    @functools.wraps(function)\n"
        "    def inner(*a, **k): return 2 * function(*a, **k)\n    return inner",
        "@f\n    def three(x, y=1):\n        'Three.'\n        return 3 * x * y\n"
        "    assert three(1) == 6 and three(1, y=2) == 12 and three.__name__ == 'three' and three.__doc__ == 'Three.'",
    ),
    "a context manager": (
        "from contextlib import contextmanager\nclosed = []\n@contextmanager\ndef f(x):\n"
        "    try: yield closed\n    finally: closed.append(x)",
        "with f(1) as got: assert got == []\n    with f(2) as got: assert got == [1]",
    ),
    "deep lists": (
        "def f(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x",
        "x = f(3000)\n    n = 0\n    while x: x, n = x[0], n + 1\n    assert n == 3000",
    ),
    "an enumeration": (
        "import enum\nclass C(enum.Enum):\n    RED = 'r'\n    BLUE = 'b'\ndef f(x): return C(x)",
        "assert f('r').name == 'RED' and f('r') == f('r') and f('r') != f('b') and f('b').value == 'b'",
    ),
    "a compiled pattern": (
        "import re\ndef f(x): return re.compile(x)",
        "import re\n    assert f('a+') == re.compile('a+') and f('b').match('b').group() == 'b'",
    ),
}
"""What is returned: a solution, and what its tests say."""

ARGUMENTS = {
    "a list, changed, with a number returned": (
        "def f(xs):\n    k = 0\n    for x in xs:\n        if k == 0 or x != xs[k - 1]:\n            xs[k] = x\n"
        "            k += 1\n    return k",
        "xs = [1, 1, 2]\n    k = f(xs)\n    assert k == 2 and xs[:k] == [1, 2]",
    ),
    "a list, sorted in place and returned": (
        "def f(xs):\n    xs.sort()\n    return xs",
        "xs = [2, 1]\n    assert f(xs) is xs\n    assert xs == [1, 2]",
    ),
    "one list twice": (
        "def f(xs, ys): xs.append(1); return xs is ys and len(ys)",
        "xs = []\n    assert f(xs, xs) == 1 and f([], []) is False",
    ),
    "a list that holds itself": (
        "def f(xs): return xs[0] is xs",
        "xs = []\n    xs.append(xs)\n    assert f(xs) is True",
    ),
    "a cycle of nodes": (
        "def f(node):\n    slow = fast = node\n    while fast and fast.next:\n        slow, fast = slow.next, fast.next.next\n"
        "        if slow is fast: return True\n    return False",
        "a = N(1); a.next = N(2); a.next.next = a\n    assert f(a) is True and f(N(1, N(2))) is False",
    ),
    "nodes, turned round in place": (
        "def f(node):\n    last = None\n    while node: node.next, last, node = last, node, node.next\n    return last",
        "head = f(N(1, N(2, N(3))))\n    assert [head.v, head.next.v, head.next.next.v] == [3, 2, 1] and head.next.next.next is None",
    ),
    "a callback": (
        "def f(g, xs): return [g(x) for x in xs]",
        "seen = []\n    assert f(lambda x: seen.append(x) or 2 * x, [1, 2]) == [2, 4] and seen == [1, 2]",
    ),
    "a callback by its name and signature": (
        "import inspect\ndef f(g): return g.__name__, list(inspect.signature(g).parameters)",
        "def two(a, b=1): return a\n    assert f(two) == ('two', ['a', 'b'])",
    ),
    "a function to be curried": (
        "import inspect\ndef f(g):\n    n = len(inspect.signature(g).parameters)\n"
        "    def take(*a): return g(*a) if len(a) >= n else lambda *b: take(*a, *b)\n    return take",
        "assert f(lambda a, b, c: a + b + c)(1)(2)(3) == 6",
    ),
    "an iterator": (
        "def f(xs):\n    it = iter(xs)\n    return list(zip(it, it))",
        "assert f(iter([1, 2, 3, 4])) == [(1, 2), (3, 4)]",
    ),
    "an endless generator": (
        "from itertools import islice\ndef f(xs, n): return list(islice(xs, n))",
        "import itertools\n    def ones():\n        while True: yield 1\n    assert f(ones(), 3) == [1, 1, 1] and f(itertools.count(2), 2) == [2, 3]",
    ),
    "an iterator of the tests' own": (
        "def f(xs): return [x for x in xs]",
        "class Down:\n        def __init__(self, n): self.n = n\n        def __iter__(self): return self\n"
        "        def __next__(self):\n            if self.n == 0: raise StopIteration\n            self.n -= 1\n            return self.n\n"
        "    assert f(Down(3)) == [2, 1, 0]",
    ),
    "a file in memory": (
        "def f(file): return [line.strip() for line in file]",
        "import io\n    assert f(io.StringIO('a\\nb\\n')) == ['a', 'b']",
    ),
    "a stream to write to": (
        "def f(out, n):\n    for k in range(n): print(k, file=out)",
        "import io\n    out = io.StringIO()\n    f(out, 2)\n    assert out.getvalue() == '0\\n1\\n'",
    ),
    "a key function": (
        "def f(xs, key): return max(xs, key=key), sorted(xs, key=key), min(xs, key=key)",
        "assert f(['aa', 'b', 'ccc'], len) == ('ccc', ['b', 'aa', 'ccc'], 'b')",
    ),
    "an error of the tests' own": (
        "def f(g):\n    try: return g()\n    except ValueError as error: return str(error)",
        "class Own(ValueError): pass\n    def fails(): raise Own('no')\n    assert f(fails) == 'no'",
    ),
    "an enumeration of the prompt": (
        "def f(c): return Side.RIGHT if c is Side.LEFT else Side.LEFT",
        "assert f(Side.LEFT) == Side.RIGHT and f(Side.RIGHT) is Side.LEFT",
    ),
    "a random generator": (
        "def f(r): return r.randint(1, 6)",
        "import random\n    assert f(random.Random(3)) == random.Random(3).randint(1, 6)",
    ),
    "a method that is bound": (
        "def f(put, n):\n    for k in range(n): put(k)",
        "xs = []\n    f(xs.append, 2)\n    assert xs == [0, 1]",
    ),
    "a deque with a bound": (
        "def f(d, x):\n    d.append(x)\n    return list(d)",
        "from collections import deque\n    assert f(deque([1, 2], 2), 3) == [2, 3]",
    ),
}
"""What tests hand over: a solution, and what its tests say. `N` and `Side` are given."""

GIVEN = """
import enum
class N:
    def __init__(self, v, next=None): self.v, self.next = v, next
class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2
"""

ARRAYS = {
    "an array of numpy": (
        "return np.arange(x)",
        "assert f(3).tolist() == [0, 1, 2] and list(f(2)) == [0, 1]",
    ),
    "numbers of numpy": ("return np.int64(x) * 2", "assert f(3) == 6 and f(3) + 1 == 7"),
    "numpy's truth": ("return np.array([x, 1]) == 1", "assert f(1).all() and not f(2).all()"),
    "a matrix": (
        "return np.ones((x, 2)) @ np.ones((2, x))",
        "import numpy as np\n    assert np.array_equal(f(2), [[2, 2], [2, 2]]) and f(3).shape == (3, 3)",
    ),
    "an array as argument": (
        "return (x * 2).sum()",
        "import numpy as np\n    assert f(np.array([1, 2])) == 6",
    ),
}
"""The same with numpy, where it is installed."""


def programs() -> dict[str, tuple[str, str, str]]:
    """Name -> solution, tests, and what is given."""
    found = {f"uses {name}": (source, SQUARES, "") for name, source in USES.items()}
    for kind, cases, given in (("returns", RETURNS, ""), ("takes", ARGUMENTS, GIVEN)):
        for name, (source, holds) in cases.items():
            found[f"{kind} {name}"] = (source, f"def check(f):\n    {holds}\n", given)
    for name, (body, holds) in ARRAYS.items():
        source = f"import numpy as np\ndef f(x):\n    {body}\n"
        found[f"numpy: {name}"] = (source, f"def check(f):\n    {holds}\n", "")
    return found
