# SPDX-License-Identifier: Apache-2.0
"""interrupt.py SIGNAL LOG CMD…: runs CMD, sends SIGNAL once LOG has ten steps, and exits with CMD's status (or -SIGNAL)."""
import pathlib
import signal
import subprocess
import sys
import time

name, log, command = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
run = subprocess.Popen([*command, "--log", log])
deadline = time.time() + 60
while run.poll() is None and time.time() < deadline:
    if log.exists() and log.read_text().count('{"step":') >= 10:
        run.send_signal(getattr(signal, name))
        break
    time.sleep(0.01)
status = run.wait(60)
sys.exit(status if status >= 0 else f"killed by signal {-status}")
