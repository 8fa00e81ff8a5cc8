"""Processes that exist at the same time and take steps in turn, so that what slows a machine for a while slows all of
them.

A process says that it is ready before each step, and waits for its turn. So at any time one process takes a step,
except while they start. It asks again and again whether it is its turn: a process that slept would begin each step on a
processor that has to wake up, maybe another one than before, whose caches have nothing of it.
"""

import os
import subprocess
import sys
import tempfile
import threading

from programs.allocators import environment, rows_in

READY = "ready"


def take():
    """Waits for the turn of this process. Raises ``EOFError`` if there will be none."""
    own = sys.stdin.fileno()
    os.set_blocking(own, False)
    # Not to what a program may have put in place of the output.
    print(READY, file=sys.__stdout__, flush=True)
    while True:
        try:
            turn = os.read(own, 1)
        except BlockingIOError:
            continue
        if not turn:
            raise EOFError("the process that gives turns has ended")
        return


class Player:
    """A process that runs a script on an allocator."""

    def __init__(self, script, arguments, allocator, seen):
        self.allocator, self.rows, self.runs, self.seen = allocator, [], True, seen
        self.errors = tempfile.TemporaryFile("w+")
        command = [sys.executable, script, "--child", allocator, "--turns", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=environment(allocator),
        )

    def give(self):
        """Gives the process its turn."""
        try:
            self.process.stdin.write("+")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.runs = False

    def follow(self):
        """Waits until the process is ready for another turn, or has ended. Keeps the rows that it prints."""
        for line in self.process.stdout:
            for row in rows_in([line]):
                self.rows.append(row)
                self.seen(row)
            if line.strip() == READY:
                return
        self.runs = False

    def end(self):
        """Waits for the end of the process. Returns why it has failed, or an empty text."""
        code = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        with self.errors:
            self.errors.seek(0)
            return f"exit code {code}: {self.errors.read()[-1500:]}" if code else ""


def play(script, arguments, allocators, limit, seen=lambda row: None):
    """Runs a script on several allocators, which take steps in turn; each step begins with another one. Returns the
    rows of all and, by allocator, why it has failed. After ``limit`` seconds all processes are ended. Calls
    ``seen`` with each row when it comes."""
    players = [Player(script, arguments, allocator, seen) for allocator in allocators]
    watch = threading.Timer(limit, lambda: [player.process.kill() for player in players])
    watch.start()
    try:
        for player in players:
            player.follow()
        step = 0
        while any(player.runs for player in players):
            first = step % len(players)
            for player in players[first:] + players[:first]:
                if player.runs:
                    player.give()
                    player.follow()
            step += 1
    finally:
        watch.cancel()
        for player in players:
            if player.runs:
                player.process.kill()
    failed = {player.allocator: why for player in players if (why := player.end())}
    return [row for player in players for row in player.rows], failed
