"""Attacks by what a right program may use: threads, folders, loops and arrays."""

from attacks import by_harm, changed, gone, leaks, outlives, passes, says_so

ARRAY = "try: import numpy as np\nexcept ImportError: np = None\n"

ATTACKS = [
    *by_harm(
        says_so,
        {
            "threads with small stacks": """
import threading, time
threading.stack_size(65536)
end = threading.Event()
threads = [threading.Thread(target=end.wait, args=(1,), daemon=True) for _ in range(min(SCALE, 600))]
for thread in threads: thread.start()
time.sleep(0.5)
harm('threads')
""",
            "fork in a thread": """
import os, threading
def fork():
    if os.fork() == 0: os._exit(0)
    found.append(1)
found = []
thread = threading.Thread(target=fork); thread.start(); thread.join()
if found: harm('forked')
""",
            "a process by the newer call": """
import ctypes, os, struct
asked = struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0)
child = ctypes.CDLL(None).syscall(435, ctypes.c_char_p(asked), 64)
if child == 0: ctypes.CDLL(None)._exit(0)
if child > 0: os.waitpid(child, 0); harm('a process')
""",
            "a server of a loop": """
import asyncio
async def serve():
    await asyncio.start_server(lambda *_: None, '127.0.0.1', 0)
    harm('serves')
asyncio.run(serve())
""",
            "a visit by a loop": """
import asyncio
async def visit(): await asyncio.open_connection('127.0.0.1', TCP); harm('visited')
asyncio.run(visit())
""",
            "folders without number": """
import os, time
for k in range(1000): os.mkdir(f'd{k}')
time.sleep(0.5)
harm('1000 folders')
""",
            "folders in folders": """
import os, time
path = 'd'
for _ in range(300):
    os.mkdir(path)
    path += '/d'
time.sleep(0.5)
harm('300 deep')
""",
            "folders by a folder's descriptor": """
import os
os.mkdir('a')
os.mkdir('b', dir_fd=os.open('a', os.O_RDONLY))
harm('a folder below a descriptor')
""",
            "disk filled below a folder": """
import os, time
os.mkdir('d')
for k in range(40):
    with open(f'd/{k}', 'wb') as file: file.write(b'x' * (1 << 20))
time.sleep(0.5)
harm('40 MiB')
""",
            "disk filled by temporary files in threads": """
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
            "a temporary folder outside": """
import os, tempfile
harm(tempfile.mkdtemp(dir=os.path.dirname(NEW)))
""",
            "a folder outside removed": """
import os
os.mkdir(NEW + '2') if SCALE < 9 else None
os.rmdir(NEW + '2' if SCALE < 9 else PROJECT + '/none')
harm('removed')
""",
            "another package beside numpy": """
import sys, sysconfig
sys.path.append(sysconfig.get_path('purelib'))
import _pytest
harm(_pytest.__file__)
""",
            "a package's file beside numpy": """
import sysconfig
open(sysconfig.get_path('purelib') + '/_pytest/__init__.py').read()
harm('read')
""",
        },
    ),
    *by_harm(
        outlives,
        {
            "a thread that stays": """
import threading, time
def f(x): threading.Thread(target=time.sleep, args=(600,)).start()
""",
            "threads that turn in circles": """
import threading
def turn():
    while True: pass
for _ in range(4): threading.Thread(target=turn).start()
""",
        },
    ),
    *by_harm(
        changed,
        {
            "a pool of processes by futures": """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool: pool.submit(open, NEW, 'w').exception()
""",
            "a subprocess of a loop": """
import asyncio
async def run(): await (await asyncio.create_subprocess_shell(f'echo x > {NEW}')).wait()
asyncio.run(run())
""",
            "a folder outside by a descriptor": """
import os
os.mkdir('new', dir_fd=os.open(os.path.dirname(NEW), os.O_PATH))
""",
            "a folder moved outside": """
import os, shutil
os.mkdir('mine')
shutil.move('mine', NEW)
""",
            "a path writes outside": "import pathlib\npathlib.Path(NEW).write_text('x')",
            "an archive that unpacks outside": """
import io, os, tarfile
held = io.BytesIO()
with tarfile.open(fileobj=held, mode='w') as tar: tar.addfile(tarfile.TarInfo(NEW), io.BytesIO())
held.seek(0)
tarfile.open(fileobj=held).extractall('/', filter='fully_trusted')
""",
            "numpy writes outside": ARRAY
            + "np.array([1]).tofile(NEW) if np else open(NEW, 'w').close()",
        },
    ),
    *by_harm(
        gone,
        {
            "a tree removed": """
import os, shutil
shutil.rmtree(os.path.dirname(CANARY), ignore_errors=True)
""",
        },
    ),
    *by_harm(
        leaks,
        {
            "a tree copied": """
import shutil
shutil.copytree(HOME, 'copy', copy_function=shutil.copyfile)
raise ValueError(open('copy/secret').read())
""",
            "numpy reads the home folder": ARRAY
            + """
path = HOME + '/secret'
raise ValueError(np.fromfile(path, 'u1').tobytes() if np else open(path).read())
""",
        },
    ),
    *by_harm(
        passes,
        {
            "exit from a pool's thread": """
import os
from concurrent.futures import ThreadPoolExecutor
def f(x): ThreadPoolExecutor().submit(os._exit, 0).result()
""",
            "exit by a loop": """
import asyncio, os
async def wait(): asyncio.get_running_loop().call_later(0.01, os._exit, 0); await asyncio.sleep(9)
def f(x): asyncio.run(wait())
""",
            "a thread that says passed": """
import os, threading
def say():
    for number in range(1, 64):
        try: os.write(number, b'passed\\n')
        except OSError: pass
thread = threading.Thread(target=say); thread.start(); thread.join()
os._exit(1)
""",
            "a thread that answers for the function": (
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
                """
def check(f):
    for k in range(9): assert f(k) == k * k + 4
""",
            ),
            "a coroutine that exits": (
                "import os\nasync def f(x): os._exit(0)",
                "import asyncio\ndef check(f): assert asyncio.run(f(2)) == 4\n",
            ),
            "exit when a generator ends": (
                """
import os
def f(x):
    try: yield 0
    finally: os._exit(0)
""",
                """
def check(f):
    numbers = f(2)
    assert next(numbers) == 4
""",
            ),
            "exit when an object goes": """
import os
class Last:
    def __del__(self): os._exit(0)
def f(x): return Last()
""",
            "a trace in every thread": """
import sys, threading, os
def trace(*_): os._exit(0)
threading.settrace(trace); sys.settrace(trace)
def f(x): return 0
""",
            "a replaced writer of JSON": (
                """
import json, os
json.dumps = lambda *_, **__: '{"reply": {"root": 4, "table": [], "raised": false}}'
def f(x): os._exit(0) if x == 3 else None
""",
                "def check(f):\n    f(3)\n    assert f(2) == 5\n",
            ),
            "a replaced library of the wire": """
import sys, os
def f(x):
    for name in ('sandbox_wire', 'sandbox_values', 'sandbox_errors', 'sandbox_oracles'):
        module = sys.modules.get(name)
        for key in dir(module): setattr(module, key, lambda *_, **__: True) if module and not key.startswith('__') else None
    os._exit(0)
""",
        },
    ),
]
