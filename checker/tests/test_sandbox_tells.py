"""What a program under test can learn of the machine is no more than SECURITY.md says."""

import os

from codecheck.sandbox import CheckedProgram, run_checked

CLOSED = {
    "root's content": "os.listdir('/')",
    "the folders of users": "os.listdir('/root') + os.listdir('/home')",
    "the folder of temporary files": "os.listdir('/tmp')",
    "what is in /usr": "os.listdir('/usr')",
    "what is in /etc": "os.listdir('/etc')",
    "the project's files": f"os.listdir({os.getcwd()!r})",
    "the content of a package": f"open({os.path.abspath(__file__)!r}).read()",
    "processes": "os.listdir('/proc')",
    "its own open files": "os.listdir('/proc/self/fd')",
    "mounts": "open('/proc/self/mounts').read()",
    "a command line": "open('/proc/self/cmdline').read()",
    "the environment it was started from": "open('/proc/self/environ').read()",
    "where the asker works": "os.readlink(f'/proc/{os.getppid()}/cwd')",
    "what the asker runs": "os.readlink(f'/proc/{os.getppid()}/exe')",
    "what the asker has open": "os.readlink(f'/proc/{os.getppid()}/fd/1')",
    "the asker's memory": "open(f'/proc/{os.getppid()}/maps').read()",
    "the first process": "os.readlink('/proc/1/exe')",
    "users": "open('/etc/passwd').read()",
    "hosts": "open('/etc/hosts').read()",
    "devices": "os.listdir('/dev')",
    "the system's settings": "os.listdir('/sys')",
    "how full a disk is": "os.statvfs('/')",
    "more attributes": "os.listxattr('/')",
    "another process's priority": "os.getpriority(os.PRIO_PROCESS, 1)",
    "another process's session": "os.getsid(1)",
    "a process to hold on to": "os.pidfd_open(os.getppid())",
    "another folder to work in": "os.chdir('/')",
}
"""Refused, whoever owns it."""

PROGRAM = """
import os
CLOSED = {closed!r}
def learned(_):
    found = []
    for name, expression in CLOSED.items():
        try:
            eval(expression)
        except PermissionError:
            continue
        except OSError as error:
            found.append(f"{{name}}: {{error!r}}")
        else:
            found.append(name)
    return found
"""


def test_what_a_folder_or_file_holds_and_what_others_do_stays_closed():
    program = PROGRAM.format(closed=CLOSED)
    ended = run_checked(CheckedProgram(program, "learned", "def check(f): assert f(0) == [], f(0)"))
    assert ended.passed, ended.detail
    names: dict[str, object] = {}
    exec(program, names)
    assert len(names["learned"](0)) > len(CLOSED) // 2  # where nothing stops it


def test_names_sizes_and_where_links_point_are_told(tmp_path):
    """Not promised otherwise: the kernel's Landlock bounds neither stat nor readlink."""
    (tmp_path / "secret").write_text("12345")
    (tmp_path / "link").symlink_to("secret")
    program = (
        "import os\ndef f(folder):\n"
        "    size = os.stat(f'{folder}/secret').st_size\n"
        "    return size, os.readlink(f'{folder}/link'), dict(os.environ)"
    )
    check = f"def check(f): assert f({str(tmp_path)!r}) == (5, 'secret', {{}})"
    assert run_checked(CheckedProgram(program, "f", check)).passed
