"""Attacks on files: writing outside, and reading what is none of a solution's business."""

from attacks import by_harm, changed, gone, leaks, says_so

ATTACKS = [
    *by_harm(
        changed,
        {
            "write outside": "open(NEW, 'w').write('x')",
            "write upwards": """
import os
open(os.path.relpath(NEW), 'w').write('x')
""",
            "overwrite": "open(CANARY, 'w').write('x')",
            "append": "open(CANARY, 'a').write('x')",
            "replace": """
import os
open('mine', 'w').close()
os.replace('mine', CANARY)
""",
            "empty by opening to read": """
import os
os.open(CANARY, os.O_RDONLY | os.O_TRUNC)
""",
            "truncate": """
import os
os.truncate(CANARY, 1)
""",
            "change rights": """
import os
os.chmod(CANARY, 0o777)
""",
            "change times": """
import os
os.utime(CANARY, (5, 5))
""",
            "write through a symbolic link": """
import os
os.symlink(CANARY, 'link')
open('link', 'w').write('x')
""",
            "write through a hard link": """
import os
os.link(CANARY, 'link')
open('link', 'w').write('x')
""",
            "make a folder outside": """
import os
os.mkdir(NEW)
""",
            "make a named pipe outside": """
import os
os.mkfifo(NEW)
""",
            "write by a system call's number": """
import ctypes
ctypes.CDLL(None).syscall(257, -100, NEW.encode(), 0o101, 0o600)
""",
            "write by a database": """
import sqlite3
open('x', 'w').close()
sqlite3.connect(NEW).execute('create table t (x)')
""",
        },
    ),
    *by_harm(
        gone,
        {
            "delete": """
import os
os.unlink(CANARY)
""",
            "move away": """
import os
os.rename(CANARY, CANARY + '2')
""",
        },
    ),
    *by_harm(
        says_so,
        {
            "extended attribute": """
import os
os.setxattr(CANARY, 'user.mark', b'x')
harm('marked')
""",
            "write shared memory": """
import os
open('/dev/shm/ttsgraph-attack', 'w').close()
os.unlink('/dev/shm/ttsgraph-attack')
harm()
""",
            "list the project": """
import os
harm(os.listdir(PROJECT))
""",
            "read the users": "harm(open('/etc/passwd').readline())",
        },
    ),
    *by_harm(
        leaks,
        {
            "read the home folder": "raise ValueError(open(HOME + '/secret').read())",
            "read the project": "raise ValueError(open(PROJECT + '/secret').read())",
            "read by descriptor of a folder": """
import os
raise ValueError(os.read(os.open('secret', 0, dir_fd=os.open(HOME, os.O_PATH)), 99))
""",
            "read through a symbolic link": """
import os
os.symlink(HOME, 'home')
raise ValueError(open('home/secret').read())
""",
            "import from the project": """
import sys
sys.path.insert(0, PROJECT)
import importlib.util as util
import importlib.machinery as m
raise ValueError(m.SourceFileLoader('s', PROJECT + '/secret').get_data(PROJECT + '/secret'))
""",
            "read by memory map": """
import mmap
file = open(HOME + '/secret', 'rb')
raise ValueError(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:99])
""",
            "read the environment": """
import os
raise ValueError(os.environ['SECRET_KEY'])
""",
            "read the environment where the kernel shows it": "raise ValueError(open('/proc/self/environ').read().partition('SECRET_KEY=')[2][:20])",
            "read inherited descriptors": """
import os
said = []
for number in range(3, 256):
    try: said.append(os.pread(number, 20, 0).decode())
    except OSError: pass
raise ValueError(said)
""",
            "read another's command line": "raise ValueError(open(f'/proc/{VICTIM}/cmdline').read()[-20:])",
            "reach files through another's root": "raise ValueError(open(f'/proc/{VICTIM}/root' + HOME + '/secret').read())",
        },
    ),
]
