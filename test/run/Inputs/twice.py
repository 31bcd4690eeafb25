# SPDX-License-Identifier: Apache-2.0
"""twice.py AMPRUN PLAN: two signals while the process cannot finish its step, and notes that nobody reads.

A step is held up by a log that is a pipe without a reader's attention: the write blocks, the first signal only sets
the flag (the write goes on), the second has to end the process.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

amprun, plan = sys.argv[1:]


def blocked(folder):
    """A run whose log is a full pipe."""
    pipe = os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run = subprocess.Popen([amprun, plan, "--data", "random", "--steps", "100000000", "--log", pipe],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:  # until the process sleeps in its write
        time.sleep(0.05)
        with open(f"/proc/{run.pid}/wchan") as f:
            if "pipe" in f.read():
                return run, reader


for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
    with tempfile.TemporaryDirectory() as folder:
        run, reader = blocked(folder)
        run.send_signal(first)
        time.sleep(0.2)
        assert run.poll() is None, "the first signal waits for the step"
        run.send_signal(second)
        status = run.wait(30)
        os.close(reader)
        print(f"{first.name} {second.name}: ended by {signal.Signals(-status).name}", flush=True)

reader, writer = os.pipe()
os.close(reader)
run = subprocess.run([amprun, plan, "--data", "random", "--steps", "3"], stderr=writer, stdout=subprocess.DEVNULL)
print(f"closed pipe: status {run.returncode}")
