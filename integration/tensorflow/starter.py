"""Starts the Python processes of the tests.

To import TensorFlow takes seconds, and to fork takes none. So this process imports it once, before it has any state, and forks for each request.
Its standard input is a Unix socket. A request is the JSON list of a program and its arguments, with three descriptors: the standard input, output and
error of the new process. The answer is the ID of that process. This process ends when the other side of the socket is closed.
"""

import json
import os
import runpy
import signal
import socket
import sys

import tensorflow as tf  # noqa: F401: the processes find it imported


def start(arguments, files):
    """Makes this process, which was just forked, the one that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def main():
    requests = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes, so the kernel removes them
    while True:
        request, files, _, _ = socket.recv_fds(requests, 1 << 16, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            start(json.loads(request), files)
            return
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


main()
