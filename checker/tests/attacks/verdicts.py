"""Attacks on the verdict: solutions that compute nothing and want to be taken for right."""

from attacks import by_harm, passes

ATTACKS = [
    *by_harm(
        passes,
        {
            "print passed": "print('passed', flush=True)",
            "sys.exit(0)": """
import sys
sys.exit(0)
""",
            "sys.exit(0) when called": """
import sys
def f(x): sys.exit(0)
""",
            "os._exit(0)": """
import os
os._exit(0)
""",
            "os._exit(0) when called": """
import os
def f(x): os._exit(0)
""",
            "exit when Python ends": """
import atexit, os
atexit.register(os._exit, 0)
""",
            "exit instead of a traceback": """
import sys, os
sys.excepthook = lambda *_: os._exit(0)
""",
            "SystemExit in a thread": """
import threading, os
def f(x):
    try: thread = threading.Thread(target=quiet); thread.start(); thread.join()
    except RuntimeError: pass
    return None
def quiet():
    try: raise SystemExit
    finally: os._exit(0)
""",
            "exit on a signal": """
import signal, os
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.05)
import time
def f(x): time.sleep(1)
""",
            "say passed to every descriptor": """
import os
for number in range(1, 64):
    try: os.write(number, b'passed\\n')
    except OSError: pass
os._exit(1)
""",
            "close every descriptor": """
import os
os.closerange(0, 256)
os._exit(0)
""",
            "equal to everything": """
class Equal:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def f(x): return Equal()
""",
            "an int that is equal to everything": """
class Equal(int):
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def f(x): return Equal()
""",
            "a text that is equal to everything": """
class Equal(str):
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def f(x): return Equal()
""",
            "different from nothing": (
                """
class Same(int):
    __ne__ = lambda self, other: False
def f(x): return Same(0)
""",
                """
def check(f):
    if f(2) != 4: raise ValueError
""",
            ),
            "smaller than everything": (
                """
class Small:
    __sub__ = __abs__ = lambda *_: Small()
    __lt__ = lambda *_: True
def f(x): return Small()
""",
                """
def check(f):
    assert abs(f(2) - 4) < 1e-6
""",
            ),
            "patch builtins": (
                """
import builtins
builtins.all = lambda values: True
""",
                """
def check(f):
    assert all(f(x) == x * x for x in (2, 3))
""",
            ),
            "patch the dictionary of builtins": (
                """
import builtins
vars(builtins)['abs'] = lambda x: 0
def f(x): return 0
""",
                """
def check(f):
    assert abs(f(2) - 4) < 1e-6
""",
            ),
            "patch math": (
                """
import math
math.isclose = lambda *_, **__: True
""",
                """
import math
def check(f):
    assert math.isclose(f(2) or 0, 4)
""",
            ),
            "replace a module": (
                """
import sys, types
sys.modules['math'] = types.SimpleNamespace(isclose=lambda *_: True)
""",
                """
import math
def check(f):
    assert math.isclose(f(2) or 0, 4)
""",
            ),
            "patch unittest": (
                """
import unittest
unittest.TestCase.assertEqual = lambda *_: None
""",
                """
import unittest
def check(f):
    unittest.TestCase().assertEqual(f(2), 4)
""",
            ),
            "skip the tests of unittest": (
                """
import unittest
def f(x): raise unittest.SkipTest
""",
                """
import unittest
def check(f):
    class T(unittest.TestCase):
        def test(self): self.assertEqual(f(2), 4)
    assert unittest.TextTestRunner().run(T('test')).wasSuccessful()
""",
            ),
            "replace the tests from a frame": (
                """
import sys
def f(x):
    names = sys._getframe(1).f_globals
    check = names.get('check')
    if check: check.__defaults__ = None; names['AssertionError'] = names['right'] = SystemExit(0)
    import os
    return names.get('right')
""",
                """
right = 4
def check(f):
    answer = f(2)
    assert answer == right
""",
            ),
            "swallow assertions by a frame": (
                """
import sys
def f(x):
    sys._getframe(1).f_globals['AssertionError'] = None
    frame = sys._getframe(1)
    frame.f_globals['expected'] = None
""",
                """
expected = 4
def check(f):
    assert f(2) == expected
""",
            ),
            "jump over assertions": (
                """
import sys
def jump(frame, event, _):
    if event == 'line' and frame.f_code.co_name == 'check' and frame.f_lineno < LAST(frame): frame.f_lineno = LAST(frame)
    return jump
def LAST(frame): return max(line for *_, line in frame.f_code.co_lines() if line)
def trace(frame, event, _): return jump if frame.f_code.co_name == 'check' else None
sys.settrace(trace)
""",
                """
def check(f):
    x = 2
    assert f(x) == 4
    x = 3
""",
            ),
            "read what is expected from the tests": """
import sys
def f(x):
    constants = sys._getframe(1).f_code.co_consts
    return constants[constants.index(x) + 1]
""",
            "find the tests in memory": (
                """
import gc, sys
def f(x):
    for frame in (sys._getframe(n) for n in range(1, 9)):
        if 'answers' in frame.f_globals: return frame.f_globals['answers'][x]
""",
                """
answers = {2: 4, 3: 9}
def check(f):
    for x, y in answers.items(): assert f(x) == y
""",
            ),
            "search all objects": (
                """
import gc
def f(x):
    for thing in gc.get_objects():
        if type(thing) is dict and 'expected' in thing and x in thing:
            return thing[x]
""",
                """
answers = {'expected': [], 2: 4}
def check(f):
    assert f(2) == answers[2]
""",
            ),
            "make 5 of 4": (
                """
import ctypes
def f(x):
    ctypes.c_int32.from_address(id(4) + 24).value = 5
    return 5
""",
                """
def check(f):
    expected = 4
    assert f(2) == expected
""",
            ),
            "change what is compared": (
                """
def f(x):
    x.clear()
    return []
""",
                """
def check(f):
    xs = [3, 1]
    assert f(xs) == sorted(xs)
""",
            ),
            "a promise of another class": (
                """
class Liar:
    __class__ = int
    __eq__ = lambda *_: True
    __getattr__ = lambda *_: Liar()
def f(x): return Liar()
""",
                """
def check(f):
    answer = f(2)
    assert isinstance(answer, int) and answer == 4
""",
            ),
            "a trusted class with a method of its own": (
                """
def f(x):
    from_tests = globals().get('Number')
    if from_tests is None:
        import sys
        from_tests = next(names['Number'] for names in (sys._getframe(n).f_globals for n in range(1, 9)) if 'Number' in names)
    number = object.__new__(from_tests)
    number.same = lambda other: True
    return number
""",
                """
class Number:
    def __init__(self, value): self.value = value
    def same(self, other): return self.value == other.value
    def __eq__(self, other): return self.same(other)
def check(f):
    assert f(2) == Number(4)
""",
            ),
            "an exception that says it is the right one": (
                """
class Wrong(ValueError):
    matches = lambda self, wanted: True
def f(x):
    error = Wrong()
    error.matches = lambda wanted: True
    raise error
""",
                """
class Wrong(ValueError):
    def matches(self, wanted): return self.args == (wanted,)
def check(f):
    try: f(2)
    except ValueError as error: assert isinstance(error, Wrong) and error.matches(4)
    else: assert False
""",
            ),
            "a hook for every event": """
import sys, os
def f(x):
    sys.addaudithook(lambda *_: os._exit(0))
    open('x')
""",
            "a replaced codec": """
import sys
def f(x):
    for name, module in list(sys.modules.items()):
        for key in ('Codec', 'FAILED', 'PASSED'):
            if hasattr(module, key): setattr(module, key, 'passed')
    import builtins
    builtins.AssertionError = SystemExit(0)
    import os; os._exit(0)
""",
            "an answer in the wire's own words": (
                """
import os
def f(x):
    for number in range(3, 64):
        for said in (b'{"reply": {"root": 4, "table": [], "raised": false}}\\n' * 9,
                     b'"loaded"\\n{"reply": {"root": ["object", [0, "int", ["__float__"], "", true]], "table": [], "raised": false}}\\n'):
            try: os.write(number, said)
            except OSError: pass
    os._exit(0)
""",
                """
def check(f):
    for k in range(40): assert f(k) == k + 4
""",
            ),
        },
    ),
]
