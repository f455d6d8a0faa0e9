"""Attacks on other processes, by starting, signalling and reading them, and on the network."""

from attacks import by_harm, changed, killed, leaks, outlives, says_so, visits

ATTACKS = [
    *by_harm(
        visits,
        {
            "TCP": """
import socket
socket.create_connection(('127.0.0.1', TCP), 2)
""",
            "UDP": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP))
""",
            "a question to a name server": """
import socket
asked = bytes.fromhex('123401000001000000000000') + b'\\x06secret\\x07example\\0\\0\\1\\0\\1'
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(asked, ('127.0.0.1', UDP))
""",
            "a socket of the file system": """
import socket
socket.socket(socket.AF_UNIX).connect(UNIX)
""",
            "an abstract socket": """
import socket
socket.socket(socket.AF_UNIX).connect(ABSTRACT)
""",
            "fetch a page": """
import urllib.request
urllib.request.urlopen(f'http://127.0.0.1:{TCP}', timeout=2)
""",
        },
    ),
    *by_harm(
        says_so,
        {
            "resolve a name": """
import socket
harm(socket.getaddrinfo('localhost', 80)[0][4])
""",
            "offer a service": """
import socket
server = socket.socket()
server.bind(('127.0.0.1', 0))
harm('bound')
""",
            "a socket by a system call's number": """
import ctypes
if ctypes.CDLL(None).syscall(41, 2, 1, 0) >= 0: harm('socket')
""",
            "a pair of sockets": """
import socket
socket.socketpair()
harm('pair')
""",
            "kill by the group": """
import os
os.killpg(os.getpgid(VICTIM), 0)
harm('group')
""",
            "kill the parent": """
import os
os.kill(os.getppid(), 0)
harm('could signal the parent')
""",
            "trace": """
import ctypes
if ctypes.CDLL(None).ptrace(16, VICTIM, 0, 0) == 0: harm('attached')
""",
            "slow others down": """
import os
os.setpriority(os.PRIO_PROCESS, VICTIM, 19)
harm('slower')
""",
            "tie others to a core": """
import os
os.sched_setaffinity(VICTIM, os.sched_getaffinity(VICTIM))
harm('tied')
""",
            "limit others": """
import resource
resource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0))
harm('limited')
""",
            "leave its own session": """
import os
os.setpgid(0, os.getpid()) if os.getpgid(0) != os.getpid() else os.setsid()
harm('left')
""",
            "namespaces of its own": """
import ctypes
if ctypes.CDLL(None).unshare(0x10000000) == 0: harm('a new user namespace')
""",
        },
    ),
    *by_harm(
        killed,
        {
            "kill": """
import os
os.kill(VICTIM, 9)
""",
            "kill by a descriptor": """
import os, signal
signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9)
""",
            "kill by a system call's number": """
import ctypes
ctypes.CDLL(None).syscall(62, VICTIM, 9)
""",
            "kill by asking for signals about a file": """
import fcntl, os
try: read, write = os.pipe()
except OSError: read = write = 3
fcntl.fcntl(read, fcntl.F_SETOWN, VICTIM)
fcntl.fcntl(read, 10, 9)
fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
os.write(write, b'x')
""",
        },
    ),
    *by_harm(
        leaks,
        {
            "read memory of others": """
import ctypes
class Vector(ctypes.Structure): _fields_ = (('base', ctypes.c_void_p), ('length', ctypes.c_size_t))
for line in open(f'/proc/{VICTIM}/maps'):
    if '[stack]' in line:
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        buffer = ctypes.create_string_buffer(end - start)
        mine, theirs = Vector(ctypes.addressof(buffer), end - start), Vector(start, end - start)
        ctypes.CDLL(None).process_vm_readv(VICTIM, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
        at = buffer.raw.find(WORD.encode())
        raise ValueError(buffer.raw[at:at + 20])
""",
            "read memory of others as a file": """
for line in open(f'/proc/{VICTIM}/maps'):
    if '[stack]' in line:
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        with open(f'/proc/{VICTIM}/mem', 'rb') as memory:
            memory.seek(start)
            stack = memory.read(end - start)
        raise ValueError(stack[stack.find(WORD.encode()):][:20])
""",
        },
    ),
    *by_harm(
        outlives,
        {
            "a daemon by two forks": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
os.wait()
""",
            "a session of its own": """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
""",
            "a group of its own": """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    time.sleep(600)
""",
        },
    ),
    *by_harm(
        changed,
        {
            "a shell": """
import os
os.system(f'echo x > {NEW}')
""",
            "a subprocess": """
import subprocess
subprocess.run(['touch', NEW])
""",
            "become another program": """
import os
os.execv('/bin/sh', ['sh', '-c', f'echo x > {NEW}'])
""",
            "spawn": """
import os
os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', f'echo x > {NEW}'], {}), 0)
""",
            "a pool of processes": """
import multiprocessing as m
m.get_context('fork').Process(target=open, args=(NEW, 'w')).start()
""",
        },
    ),
]
