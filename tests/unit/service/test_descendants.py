"""Orphans that a process adopts, and the end of everything that came of a child."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from batchfleet.service.descendants import ProcessEnd

SCRIPT = """
import os, subprocess, sys, threading
from batchfleet.service.descendants import adopt_orphans, child_pids, end_orphans, reap_orphans

DAEMON = '''
import os, sys
child = os.fork()
if child:
    os._exit(0)
os.setsid()
os.execvp(sys.argv[1], sys.argv[1:])
'''

def run_daemon(*command):
    subprocess.run([sys.executable, "-c", DAEMON, *command], check=True)

def wait_for(condition):
    for _ in range(200):
        if condition():
            return True
        threading.Event().wait(0.05)
    return False

def state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]

adopt_orphans()
"""

REAPS = """
managed = []

def manage():
    managed.append(subprocess.Popen([sys.executable, "-c", "exit(3)"]))
    threading.Event().wait(60)

threading.Thread(target=manage, daemon=True).start()
run_daemon("true")
assert wait_for(lambda: managed and len(child_pids(os.getpid())) == 2)
assert wait_for(lambda: {state(pid) for pid in child_pids(os.getpid())} == {"Z"})
reap_orphans()
assert child_pids(os.getpid()) == [managed[0].pid]
assert managed[0].wait() == 3
reap_orphans()
"""

ENDS = """
ours = subprocess.Popen(["sleep", "611"])
run_daemon("sleep", "611")
assert wait_for(lambda: len(child_pids(os.getpid())) == 2)
end_orphans({ours.pid})
assert child_pids(os.getpid()) == [ours.pid]
assert ours.poll() is None
ours.kill()
"""


def check_script(script):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_adopted_orphans_are_reaped_and_nobody_elses_children():
    check_script(REAPS)


def test_adopted_orphans_are_ended_and_none_of_ones_own():
    check_script(ENDS)


def test_several_threads_may_wait_for_the_end_of_a_child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        end = ProcessEnd(child)
        assert not end.wait(0)
        with ThreadPoolExecutor(4) as threads:
            waits = [threads.submit(end.wait, 60) for _ in range(4)]
            assert not end.wait(0.05)
            child.stdin.close()
            assert all(wait.result() for wait in waits)
        end.close()
