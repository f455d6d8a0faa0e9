"""Attacks on files: writing outside, and reading what is none of a solution's business."""

from attacks import Attack, changed, gone, leaks

ATTACKS = [
    Attack(
        "write outside",
        "open(NEW, 'w').write('x')",
        changed,
    ),
    Attack(
        "write upwards",
        """
import os
open(os.path.relpath(NEW), 'w').write('x')
""",
        changed,
    ),
    Attack(
        "overwrite",
        "open(CANARY, 'w').write('x')",
        changed,
    ),
    Attack(
        "append",
        "open(CANARY, 'a').write('x')",
        changed,
    ),
    Attack(
        "delete",
        """
import os
os.unlink(CANARY)
""",
        gone,
    ),
    Attack(
        "move away",
        """
import os
os.rename(CANARY, CANARY + '2')
""",
        gone,
    ),
    Attack(
        "replace",
        """
import os
open('mine', 'w').close()
os.replace('mine', CANARY)
""",
        changed,
    ),
    Attack(
        "empty by opening to read",
        """
import os
os.open(CANARY, os.O_RDONLY | os.O_TRUNC)
""",
        changed,
    ),
    Attack(
        "truncate",
        """
import os
os.truncate(CANARY, 1)
""",
        changed,
    ),
    Attack(
        "change rights",
        """
import os
os.chmod(CANARY, 0o777)
""",
        changed,
    ),
    Attack(
        "change times",
        """
import os
os.utime(CANARY, (5, 5))
""",
        changed,
    ),
    Attack(
        "extended attribute",
        """
import os
os.setxattr(CANARY, 'user.mark', b'x')
harm('marked')
""",
    ),
    Attack(
        "write through a symbolic link",
        """
import os
os.symlink(CANARY, 'link')
open('link', 'w').write('x')
""",
        changed,
    ),
    Attack(
        "write through a hard link",
        """
import os
os.link(CANARY, 'link')
open('link', 'w').write('x')
""",
        changed,
    ),
    Attack(
        "make a folder outside",
        """
import os
os.mkdir(NEW)
""",
        changed,
    ),
    Attack(
        "make a named pipe outside",
        """
import os
os.mkfifo(NEW)
""",
        changed,
    ),
    Attack(
        "write by a system call's number",
        """
import ctypes
ctypes.CDLL(None).syscall(257, -100, NEW.encode(), 0o101, 0o600)
""",
        changed,
    ),
    Attack(
        "write shared memory",
        """
import os
open('/dev/shm/ttsgraph-attack', 'w').close()
os.unlink('/dev/shm/ttsgraph-attack')
harm()
""",
    ),
    Attack(
        "read the home folder",
        "raise ValueError(open(HOME + '/secret').read())",
        leaks,
    ),
    Attack(
        "read the project",
        "raise ValueError(open(PROJECT + '/secret').read())",
        leaks,
    ),
    Attack(
        "list the project",
        """
import os
harm(os.listdir(PROJECT))
""",
    ),
    Attack(
        "read by descriptor of a folder",
        """
import os
raise ValueError(os.read(os.open('secret', 0, dir_fd=os.open(HOME, os.O_PATH)), 99))
""",
        leaks,
    ),
    Attack(
        "read through a symbolic link",
        """
import os
os.symlink(HOME, 'home')
raise ValueError(open('home/secret').read())
""",
        leaks,
    ),
    Attack(
        "import from the project",
        """
import sys
sys.path.insert(0, PROJECT)
import importlib.util as util
import importlib.machinery as m
raise ValueError(m.SourceFileLoader('s', PROJECT + '/secret').get_data(PROJECT + '/secret'))
""",
        leaks,
    ),
    Attack(
        "read by memory map",
        """
import mmap
file = open(HOME + '/secret', 'rb')
raise ValueError(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:99])
""",
        leaks,
    ),
    Attack(
        "write by a database",
        """
import sqlite3
open('x', 'w').close()
sqlite3.connect(NEW).execute('create table t (x)')
""",
        changed,
    ),
    Attack(
        "read the users",
        "harm(open('/etc/passwd').readline())",
    ),
    Attack(
        "read the environment",
        """
import os
raise ValueError(os.environ['SECRET_KEY'])
""",
        leaks,
    ),
    Attack(
        "read the environment where the kernel shows it",
        "raise ValueError(open('/proc/self/environ').read().partition('SECRET_KEY=')[2][:20])",
        leaks,
    ),
    Attack(
        "read inherited descriptors",
        """
import os
said = []
for number in range(3, 256):
    try: said.append(os.pread(number, 20, 0).decode())
    except OSError: pass
raise ValueError(said)
""",
        leaks,
    ),
    Attack(
        "read another's command line",
        "raise ValueError(open(f'/proc/{VICTIM}/cmdline').read()[-20:])",
        leaks,
    ),
    Attack(
        "reach files through another's root",
        "raise ValueError(open(f'/proc/{VICTIM}/root' + HOME + '/secret').read())",
        leaks,
    ),
]
