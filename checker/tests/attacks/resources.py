"""Attacks on the machine: its processes, memory, disk and time."""

from attacks import by_harm, outlives, says_so

ATTACKS = [
    *by_harm(
        says_so,
        {
            "fork bomb": """
import os
for _ in range(SCALE):
    if os.fork() == 0: os._exit(0)
harm('forked')
""",
            "thread bomb": """
import threading
threads = [threading.Thread(target=threading.Event().wait, args=(0.1,)) for _ in range(SCALE)]
for thread in threads: thread.start()
harm('threads')
""",
            "vfork and clone by number": """
import ctypes
if ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) == 0: ctypes.CDLL(None)._exit(0)
import os
try: os.wait()
except ChildProcessError: pass
else: harm('cloned')
""",
            "memory bomb": """
hoard = [bytearray(1 << 20) for _ in range(min(SCALE, 2048))]
harm('hoarded')
""",
            "memory bomb by mmap": """
import mmap
hoard = [mmap.mmap(-1, 1 << 20) for _ in range(min(SCALE, 2048))]
harm('mapped')
""",
            "memory that outlives its process": """
import ctypes
libc = ctypes.CDLL(None)
key = libc.shmget(0, 1 << 12, 0o600 | 0o1000)
if key >= 0:
    libc.shmctl(key, 0, None)
    harm('System V memory')
""",
            "memory in a nameless file": """
import os
file = os.memfd_create('hoard')
os.write(file, b'x')
harm('memfd')
""",
            "disk filled by one file": """
with open('big', 'wb') as file: file.truncate(0); file.write(b'x' * (2 << 20))
harm('2 MiB')
""",
            "disk filled by a hole": """
with open('big', 'wb') as file: file.truncate(1 << 40)
harm('1 TiB')
""",
            "disk filled by many files": """
import time
for k in range(min(SCALE, 64)):
    with open(f'part{k}', 'wb') as file: file.write(b'x' * (1 << 20) * (1 if SCALE > 64 else 22))
time.sleep(0.5)
harm('64 MiB')
""",
            "directory filled by small files": """
import time
for k in range(1000): open(f'file{k}', 'w').close()
time.sleep(0.5)
harm('1000 files')
""",
            "folders without end": """
import os
for _ in range(SCALE):
    os.mkdir('deeper')
    os.chdir('deeper')
harm('nested')
""",
            "descriptors without end": """
import os
files = [open(os.devnull) for _ in range(200)]
harm('200 files')
""",
            "pipes without end": """
import os
pipes = [os.pipe() for _ in range(min(SCALE, 20))]
harm('pipes')
""",
            "limits raised": """
import resource
resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
harm('setrlimit')
""",
        },
    ),
    *by_harm(
        outlives,
        {
            "a loop": "while True: pass",
            "arithmetic that hears no signal": "9 ** 9 ** 9",
            "sleep": """
import time
time.sleep(600)
""",
            "deaf to signals": """
import signal, time
for number in signal.valid_signals():
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
def f(x): time.sleep(600)
""",
            "a pattern that backtracks": """
import re
re.match('(a+)+$', 'a' * 60 + 'b')
""",
            "an answer that never ends": (
                """
def f(x):
    while True: yield x
""",
                """
def check(f):
    assert set(f(2)) == {4}
""",
            ),
        },
    ),
]
