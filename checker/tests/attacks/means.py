"""Attacks by what a right program may use: threads, folders, loops, arrays, objects that compare,
arguments that change, and what tests hand over.
"""

from attacks import Attack, changed, gone, leaks, outlives, passes

EQUAL = """
class Equal:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
"""
SORTED = "\ndef f(xs):\n    xs.clear()\n    return []\n"
ARRAY = "try: import numpy as np\nexcept ImportError: np = None\n"


def _resources() -> list[Attack]:
    return [
        Attack(
            "threads with small stacks",
            """
import threading, time
threading.stack_size(65536)
end = threading.Event()
threads = [threading.Thread(target=end.wait, args=(1,), daemon=True) for _ in range(min(SCALE, 600))]
for thread in threads: thread.start()
time.sleep(0.5)
harm('threads')
""",
        ),
        Attack(
            "a thread that stays",
            """
import threading, time
def f(x): threading.Thread(target=time.sleep, args=(600,)).start()
""",
            outlives,
        ),
        Attack(
            "threads that turn in circles",
            """
import threading
def turn():
    while True: pass
for _ in range(4): threading.Thread(target=turn).start()
""",
            outlives,
        ),
        Attack(
            "fork in a thread",
            """
import os, threading
def fork():
    if os.fork() == 0: os._exit(0)
    found.append(1)
found = []
thread = threading.Thread(target=fork); thread.start(); thread.join()
if found: harm('forked')
""",
        ),
        Attack(
            "a process by the newer call",
            """
import ctypes, os, struct
asked = struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0)
child = ctypes.CDLL(None).syscall(435, ctypes.c_char_p(asked), 64)
if child == 0: ctypes.CDLL(None)._exit(0)
if child > 0: os.waitpid(child, 0); harm('a process')
""",
        ),
        Attack(
            "a pool of processes by futures",
            """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool: pool.submit(open, NEW, 'w').exception()
""",
            changed,
        ),
        Attack(
            "a subprocess of a loop",
            """
import asyncio
async def run(): await (await asyncio.create_subprocess_shell(f'echo x > {NEW}')).wait()
asyncio.run(run())
""",
            changed,
        ),
        Attack(
            "a server of a loop",
            """
import asyncio
async def serve():
    await asyncio.start_server(lambda *_: None, '127.0.0.1', 0)
    harm('serves')
asyncio.run(serve())
""",
        ),
        Attack(
            "a visit by a loop",
            """
import asyncio
async def visit(): await asyncio.open_connection('127.0.0.1', TCP); harm('visited')
asyncio.run(visit())
""",
        ),
        Attack(
            "folders without number",
            """
import os, time
for k in range(1000): os.mkdir(f'd{k}')
time.sleep(0.5)
harm('1000 folders')
""",
        ),
        Attack(
            "folders in folders",
            """
import os, time
path = 'd'
for _ in range(300):
    os.mkdir(path)
    path += '/d'
time.sleep(0.5)
harm('300 deep')
""",
        ),
        Attack(
            "folders by a folder's descriptor",
            """
import os
os.mkdir('a')
os.mkdir('b', dir_fd=os.open('a', os.O_RDONLY))
harm('a folder below a descriptor')
""",
        ),
        Attack(
            "disk filled below a folder",
            """
import os, time
os.mkdir('d')
for k in range(40):
    with open(f'd/{k}', 'wb') as file: file.write(b'x' * (1 << 20))
time.sleep(0.5)
harm('40 MiB')
""",
        ),
        Attack(
            "disk filled by temporary files in threads",
            """
import tempfile, threading, time
held = []
def fill():
    for _ in range(10):
        file = tempfile.TemporaryFile(); file.write(b'x' * (1 << 20)); file.flush(); held.append(file)
threads = [threading.Thread(target=fill) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
time.sleep(0.5)
if len(held) == 40: harm('40 MiB')
""",
        ),
        Attack(
            "a folder outside by a descriptor",
            """
import os
os.mkdir('new', dir_fd=os.open(os.path.dirname(NEW), os.O_PATH))
""",
            changed,
        ),
        Attack(
            "a temporary folder outside",
            """
import os, tempfile
harm(tempfile.mkdtemp(dir=os.path.dirname(NEW)))
""",
        ),
        Attack(
            "a folder moved outside",
            """
import os, shutil
os.mkdir('mine')
shutil.move('mine', NEW)
""",
            changed,
        ),
        Attack(
            "a tree removed",
            """
import os, shutil
shutil.rmtree(os.path.dirname(CANARY), ignore_errors=True)
""",
            gone,
        ),
        Attack(
            "a folder outside removed",
            """
import os
os.mkdir(NEW + '2') if SCALE < 9 else None
os.rmdir(NEW + '2' if SCALE < 9 else PROJECT + '/none')
harm('removed')
""",
        ),
        Attack(
            "a path writes outside", "import pathlib\npathlib.Path(NEW).write_text('x')", changed
        ),
        Attack(
            "a tree copied",
            """
import shutil
shutil.copytree(HOME, 'copy', copy_function=shutil.copyfile)
raise ValueError(open('copy/secret').read())
""",
            leaks,
        ),
        Attack(
            "an archive that unpacks outside",
            """
import io, os, tarfile
held = io.BytesIO()
with tarfile.open(fileobj=held, mode='w') as tar: tar.addfile(tarfile.TarInfo(NEW), io.BytesIO())
held.seek(0)
tarfile.open(fileobj=held).extractall('/', filter='fully_trusted')
""",
            changed,
        ),
        Attack(
            "numpy writes outside",
            ARRAY + "np.array([1]).tofile(NEW) if np else open(NEW, 'w').close()",
            changed,
        ),
        Attack(
            "numpy reads the home folder",
            ARRAY
            + """
path = HOME + '/secret'
raise ValueError(np.fromfile(path, 'u1').tobytes() if np else open(path).read())
""",
            leaks,
        ),
        Attack(
            "another package beside numpy",
            """
import sys, sysconfig
sys.path.append(sysconfig.get_path('purelib'))
import _pytest
harm(_pytest.__file__)
""",
        ),
        Attack(
            "a package's file beside numpy",
            """
import sysconfig
open(sysconfig.get_path('purelib') + '/_pytest/__init__.py').read()
harm('read')
""",
        ),
    ]


def _exits() -> list[Attack]:
    return [
        Attack(
            "exit from a pool's thread",
            """
import os
from concurrent.futures import ThreadPoolExecutor
def f(x): ThreadPoolExecutor().submit(os._exit, 0).result()
""",
            passes,
        ),
        Attack(
            "exit by a loop",
            """
import asyncio, os
async def wait(): asyncio.get_running_loop().call_later(0.01, os._exit, 0); await asyncio.sleep(9)
def f(x): asyncio.run(wait())
""",
            passes,
        ),
        Attack(
            "a thread that says passed",
            """
import os, threading
def say():
    for number in range(1, 64):
        try: os.write(number, b'passed\\n')
        except OSError: pass
thread = threading.Thread(target=say); thread.start(); thread.join()
os._exit(1)
""",
            passes,
        ),
        Attack(
            "a thread that answers for the function",
            """
import os, threading
def say():
    for number in range(3, 64):
        for value in (4, 9):
            line = '{"reply": {"root": %d, "table": [null, null], "raised": false}}\\n' % value
            try: os.write(number, line.encode())
            except OSError: pass
    os._exit(0)
def f(x): threading.Thread(target=say).start()
""",
            passes,
            """
def check(f):
    for k in range(9): assert f(k) == k * k + 4
""",
        ),
        Attack(
            "a coroutine that exits",
            "import os\nasync def f(x): os._exit(0)",
            passes,
            "import asyncio\ndef check(f): assert asyncio.run(f(2)) == 4\n",
        ),
        Attack(
            "exit when a generator ends",
            """
import os
def f(x):
    try: yield 0
    finally: os._exit(0)
""",
            passes,
            """
def check(f):
    numbers = f(2)
    assert next(numbers) == 4
""",
        ),
        Attack(
            "exit when an object goes",
            """
import os
class Last:
    def __del__(self): os._exit(0)
def f(x): return Last()
""",
            passes,
        ),
        Attack(
            "a trace in every thread",
            """
import sys, threading, os
def trace(*_): os._exit(0)
threading.settrace(trace); sys.settrace(trace)
def f(x): return 0
""",
            passes,
        ),
        Attack(
            "a replaced writer of JSON",
            """
import json, os
json.dumps = lambda *_, **__: '{"reply": {"root": 4, "table": [], "raised": false}}'
def f(x): os._exit(0) if x == 3 else None
""",
            passes,
            "def check(f):\n    f(3)\n    assert f(2) == 5\n",
        ),
        Attack(
            "a replaced library of the wire",
            """
import sys, os
def f(x):
    for name in ('sandbox_wire', 'sandbox_values', 'sandbox_errors', 'sandbox_oracles'):
        module = sys.modules.get(name)
        for key in dir(module): setattr(module, key, lambda *_, **__: True) if module and not key.startswith('__') else None
    os._exit(0)
""",
            passes,
        ),
    ]


def _objects() -> list[Attack]:
    return [
        Attack("an object that holds nothing", f"{EQUAL}\ndef f(x): return Equal()", passes),
        Attack(
            "an object that holds many values",
            f"""{EQUAL}
def f(x):
    found = Equal()
    vars(found).update({{f'v{{k}}': k for k in range(100)}})
    return found
""",
            passes,
        ),
        Attack(
            "an object that holds another value",
            """
class Liar:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return True
def f(x): return Liar(0)
""",
            passes,
        ),
        Attack(
            "an object that shows each time another value",
            """
import itertools
numbers = itertools.count()
class Liar:
    __dict__ = property(lambda self: {'v': next(numbers)})
    __eq__ = lambda self, other: True
def f(x): return Liar()
""",
            passes,
            "def check(f):\n    for k in range(50, 60): assert f(k) == k * k\n",
        ),
        Attack(
            "true and false at once",
            """
class Both:
    def __init__(self): self.v = True
    __eq__ = lambda self, other: True
    __int__ = lambda self: 0
    __float__ = lambda self: 0.0
    __bool__ = lambda self: False
def f(x): return Both()
""",
            passes,
            "def check(f): assert f(2) == True and f(3) == False\n",
        ),
        Attack(
            "a data class that is equal to everything",
            """
from dataclasses import dataclass
@dataclass(eq=False)
class Liar:
    v: int = 0
    def __eq__(self, other): return True
def f(x): return Liar()
""",
            passes,
        ),
        Attack(
            "slots that are equal to everything",
            """
class Liar:
    __slots__ = ('a', 'b')
    def __init__(self): self.a, self.b = 0, 0
    def __eq__(self, other): return True
def f(x): return Liar()
""",
            passes,
            "def check(f): assert f(2) == (2, 4)\n",
        ),
        Attack(
            "a list that is equal to everything",
            "class Liar(list): __eq__ = lambda self, other: True\ndef f(x): return Liar()",
            passes,
            "def check(f): assert f(2) == [4]\n",
        ),
        Attack(
            "a dictionary that has everything",
            f"{EQUAL}\nclass Liar(dict): __missing__ = lambda self, key: Equal()\ndef f(x): return Liar()",
            passes,
            "def check(f): assert f(2)['a'] == 4\n",
        ),
        Attack(
            "a default dictionary of liars",
            f"{EQUAL}\nfrom collections import defaultdict\ndef f(x): return defaultdict(Equal)",
            passes,
            "def check(f): assert f(2)['a'] == 4\n",
        ),
        Attack(
            "a set that contains everything",
            "class Liar(set): __contains__ = lambda self, item: True\ndef f(x): return Liar()",
            passes,
            "def check(f): assert 4 in f(2)\n",
        ),
        Attack(
            "a text that contains everything",
            "class Liar(str): __contains__ = lambda self, item: True\ndef f(x): return Liar()",
            passes,
            "def check(f): assert 'four' in f(2)\n",
        ),
        Attack(
            "an object that contains everything",
            "class Liar:\n    __contains__ = lambda self, item: True\n    __iter__ = lambda self: iter(())\ndef f(x): return Liar()",
            passes,
            "def check(f): assert 4 in f(2)\n",
        ),
        Attack(
            "an array that is equal to everything",
            ARRAY
            + """
class Truth:
    all = any = lambda self: True
    __bool__ = lambda self: True
class Liar(np.ndarray if np else object):
    __eq__ = lambda self, other: Truth()
def f(x): return np.zeros(1).view(Liar) if np else Liar()
""",
            passes,
            "def check(f): assert (f(2) == 4).all()\n",
        ),
        Attack(
            "a named tuple that is equal to everything",
            """
from collections import namedtuple
class Liar(namedtuple('Liar', 'a')): __eq__ = lambda self, other: True
def f(x): return Liar(0)
""",
            passes,
            "def check(f): assert f(2) == (4,)\n",
        ),
        Attack(
            "a fraction that is equal to everything",
            "from fractions import Fraction\nclass Liar(Fraction): __eq__ = lambda self, other: True\ndef f(x): return Liar(0)",
            passes,
        ),
        Attack(
            "what is awaited is equal to everything",
            f"{EQUAL}\nasync def f(x): return Equal()",
            passes,
            "import asyncio\ndef check(f): assert asyncio.run(f(2)) == 4\n",
        ),
        Attack(
            "a generator of liars",
            f"{EQUAL}\ndef f(x): yield Equal()",
            passes,
            "def check(f): assert list(f(2)) == [4]\n",
        ),
        Attack(
            "a context that hides what is raised in it",
            """
class Quiet:
    __enter__ = lambda self: self
    __exit__ = lambda self, *_: True
def f(x): return Quiet()
""",
            passes,
            "def check(f):\n    with f(2) as found: assert found == 4\n",
        ),
        Attack(
            "an object that runs when it is read back",
            """
import os
class Runs:
    def __reduce__(self): return open, (NEW, 'w')
def f(x): return Runs()
""",
            changed,
            "import pickle\ndef check(f): pickle.loads(pickle.dumps(f(2)))\n",
        ),
        Attack(
            "a pattern that does not end, returned",
            "import re\ndef f(x): return re.compile('(a+)+$')",
            outlives,
            "def check(f): assert f(2).match('a' * 60 + 'b')\n",
        ),
    ]


def _arguments() -> list[Attack]:
    return [
        Attack(
            "a dictionary and its answer emptied",
            "def f(d):\n    d.clear()\n    return d",
            passes,
            "def check(f):\n    d = {'a': 1}\n    assert f(d) == {k: v + 1 for k, v in d.items()}\n",
        ),
        Attack(
            "emptied before it is sorted",
            SORTED,
            passes,
            "def check(f):\n    xs = [3, 1]\n    out = f(xs)\n    want = sorted(xs)\n    assert out == want\n",
        ),
        Attack(
            "emptied for a helper",
            SORTED,
            passes,
            "def same(a, b): return a == b\ndef check(f):\n    xs = [3, 1]\n    assert same(f(xs), sorted(xs))\n",
        ),
        Attack(
            "emptied for a helper that calls",
            SORTED,
            passes,
            "def check(f):\n    def asked(xs): return f(xs)\n    xs = [3, 1]\n    assert asked(xs) == sorted(xs)\n",
        ),
        Attack(
            "emptied for unittest",
            SORTED,
            passes,
            """
import unittest
def check(f):
    xs = [3, 1]
    unittest.TestCase().assertEqual(f(xs), sorted(xs))
""",
        ),
        Attack(
            "emptied for a loop",
            SORTED,
            passes,
            """
def check(f):
    for xs in ([3, 1], [2]):
        got = f(xs)
        assert len(got) == len(xs)
        for a, b in zip(got, sorted(xs)): assert a == b
""",
        ),
        Attack(
            "every item made the answer",
            "def f(xs):\n    xs[:] = [-1] * len(xs)\n    return [0] * len(xs)",
            passes,
            "def check(f):\n    xs = [3, 1]\n    assert all(f(xs)[k] == xs[k] + 1 for k in range(len(xs)))\n",
        ),
        Attack(
            "the expected value of a case set",
            "def f(case):\n    case['want'] = 0\n    return 0",
            passes,
            "def check(f):\n    for case in ({'x': 2, 'want': 4},): assert f(case) == case['want']\n",
        ),
        Attack(
            "the expected item of a case set",
            "def f(case):\n    case[1] = 0\n    return 0",
            passes,
            "def check(f):\n    for case in [[2, 4], [3, 9]]: assert f(case) == case[1]\n",
        ),
        Attack(
            "the expected attribute of a case set",
            "def f(case):\n    case.want = 0\n    return 0",
            passes,
            "class Case:\n    x, want = 2, 4\ndef check(f):\n    case = Case()\n    assert f(case) == case.want\n",
        ),
        Attack(
            "the names of a callback",
            "def f(g): return g.__globals__['answer']",
            passes,
            "answer = 4\ndef check(f):\n    def g(): return 2\n    assert f(g) == answer\n",
        ),
        Attack(
            "what a callback closes over",
            "def f(g): return g.__closure__[0].cell_contents",
            passes,
            "def check(f):\n    answer = 4\n    def g(): return answer and 2\n    assert f(g) == answer\n",
        ),
        Attack(
            "the constants of a callback",
            "def f(g): return g.__code__.co_consts[-1]",
            passes,
            "def check(f):\n    def g(x): return x == 4\n    assert f(g) == 4\n",
        ),
        Attack(
            "the defaults of a callback",
            "def f(g): return g.__defaults__[0]",
            passes,
            "def check(f):\n    def g(x=4): return 2\n    assert f(g) == 4\n",
        ),
        Attack(
            "the frame of a generator",
            "def f(g): return g.gi_frame.f_globals['answer']",
            passes,
            "answer = 4\ndef check(f): assert f(k for k in [2]) == answer\n",
        ),
        Attack(
            "the owner of a method",
            "def f(g): return g.__self__.answer",
            passes,
            "class Own:\n    answer = 4\n    def ask(self): return 2\ndef check(f): assert f(Own().ask) == 4\n",
        ),
        Attack(
            "a method of an argument replaced",
            "def f(own):\n    type(own).answer = lambda self: 0\n    return 0",
            passes,
            "class Own:\n    def answer(self): return 4\ndef check(f):\n    own = Own()\n    assert f(own) == own.answer()\n",
        ),
        Attack(
            "a function of the tests patched through an argument",
            "def f(g):\n    g.__code__ = (lambda x: True).__code__\n    return 0",
            passes,
            "def check(f):\n    def right(x): return x == 4\n    assert right(f(right))\n",
        ),
    ]


ATTACKS = [*_resources(), *_exits(), *_objects(), *_arguments()]
