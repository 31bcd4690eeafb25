# SPDX-License-Identifier: Apache-2.0
"""two_runs.py LOG CMD…: starts CMD with --log LOG, once it trains starts it again, then ends the first; prints both ends."""
import pathlib
import signal
import subprocess
import sys
import time

log, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
first = subprocess.Popen([*command, "--log", log], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
deadline = time.time() + 60
while first.poll() is None and time.time() < deadline and not log.exists():
    time.sleep(0.01)
second = subprocess.run(command, capture_output=True, text=True, timeout=60)
print(f"second: status {second.returncode}: {second.stderr.splitlines()[-1]}", flush=True)
first.send_signal(signal.SIGTERM)
print(f"first: process {first.pid}, status {first.wait(60)}")
