"""Runs Python programs in processes that start with modules imported: the import of JAX takes longer than most tests.

Usage: PYTHON warm_python.py start SOCKET MODULE ...             leaves a server behind, which has imported the modules
       warm_python.py run SOCKET PYTHON PROGRAM [ARGUMENTS ...]  as `PYTHON PROGRAM ...`
       warm_python.py stop SOCKET                                ends the server once its programs have ended

Each program has a process of its own, which the server forks: with the standard streams, the working folder and the
variables of `run`. It ends when `run` is killed; `run` ends as it does. Without a server `run` becomes the program, and
so it does where variables of Python or JAX are not those of the server: they count when modules are imported. A program
that sets one of them itself fails when it imports JAX; JAX_PLATFORMS still counts then.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import types
from importlib import machinery

BACKLOG = 64
IDLE_SECONDS = 3600.0  # a server that nobody stops ends by itself
NUMBER = struct.Struct("!i")
STREAMS = (0, 1, 2)
COLD = -1000  # an answer: the program needs a process without modules
LATE = "JAX_PLATFORMS"  # JAX takes it after its import, too


def at_import(variables: dict[str, str]) -> dict[str, str]:
    """Those that count when modules are imported."""
    return {name: value for name, value in variables.items() if name.startswith(("PYTHON", "JAX_")) and name != LATE}


def connect(path: str) -> socket.socket | None:
    """A connection to the server, None without one."""
    back = os.getcwd()
    connection = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(os.path.dirname(path))  # an address has at most 107 bytes
        connection.connect(os.path.basename(path))
    except OSError:
        return None
    finally:
        os.chdir(back)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    """As many bytes; fewer where the other side has ended."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def answer(connection: socket.socket, code: int) -> None:
    """Tells who asked for a program, and ends the connection. It can have been killed at any time."""
    try:
        connection.sendall(NUMBER.pack(code))
    except OSError as error:
        print(f"no answer: {error}", flush=True)
    connection.close()


def kill(process: int) -> None:
    """A program and its children."""
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:  # forked this moment: it has no group of its own yet, and no children
        os.kill(process, signal.SIGKILL)


def run(path: str, command: list[str]) -> int:
    """Exit code of the program."""
    connection = connect(path)
    answer = COLD
    if connection is not None:
        text = json.dumps([command[1:], os.getcwd(), dict(os.environ)]).encode()
        try:
            socket.send_fds(connection, [NUMBER.pack(len(text))], STREAMS)
            connection.sendall(text)
            answer = NUMBER.unpack(receive(connection, NUMBER.size))[0]
        except (OSError, struct.error):
            print(f"{path}: the server has ended before the program; see {path}.log", file=sys.stderr)
            return 1
    if answer == COLD:
        os.execv(command[0], command)
    if answer < 0:  # by a signal, as the program
        if -answer not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-answer, signal.SIG_DFL)
        os.kill(os.getpid(), -answer)
    return answer


def stop(path: str) -> int:
    """Returns when the server has ended."""
    connection = connect(path)
    if connection is not None:
        connection.sendall(NUMBER.pack(0))
        receive(connection, NUMBER.size)
    return 0


class ImportOfJax:
    """Finds JAX, which is imported, as a module that is not: to see what the program has set for its import."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.module, self.variables = sys.modules.pop("jax"), variables
        self.spec = self.module.__spec__

    def find_spec(self, name: str, *_: object) -> machinery.ModuleSpec | None:
        """Of the importer's protocol, as the other two."""
        return machinery.ModuleSpec(name, self) if name == "jax" else None

    def create_module(self, _: machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec
        sys.meta_path.remove(self)
        if at_import(dict(os.environ)) != at_import(self.variables):
            raise ImportError(f"{sys.argv[0]} sets variables for the import of JAX, which has been imported: run it "
                              f"without {__file__}")
        if os.environ.get(LATE) != self.variables.get(LATE):
            module.config.update(LATE.lower(), os.environ.get(LATE))


class Server:
    """Starts programs, and tells those who asked for them how they have ended."""

    def __init__(self, path: str, variables: dict[str, str]) -> None:
        self.path, self.variables = path, variables  # those that it was started with
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        os.chdir(os.path.dirname(path))
        mask = os.umask(0o077)  # for this user alone
        self.listener.bind(os.path.basename(path))
        os.umask(mask)
        self.listener.listen(BACKLOG)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.programs: dict[int, tuple[int, socket.socket]] = {}  # by descriptor: process, who asked
        self.stopping: list[socket.socket] = []

    def accept(self) -> list[str] | None:
        """Takes one request. The command, in the process that becomes the program."""
        connection = self.listener.accept()[0]
        data, descriptors, _, _ = socket.recv_fds(connection, NUMBER.size, len(STREAMS))
        size = NUMBER.unpack(data)[0] if len(data) == NUMBER.size else -1
        if size == 0:
            self.stopping.append(connection)
            return None
        text = receive(connection, size)
        process = -1
        if len(text) == size:
            command, folder, variables = json.loads(text)
            if at_import(variables) == at_import(self.variables):
                process = os.fork()
        if process == 0:
            self.become(descriptors, folder, variables)
            connection.close()
            return command
        for descriptor in descriptors:
            os.close(descriptor)
        if process > 0:
            end = os.pidfd_open(process)
            self.programs[end] = (process, connection)
            self.selector.register(end, selectors.EVENT_READ)
            self.selector.register(connection, selectors.EVENT_READ, process)
        else:
            answer(connection, COLD)
        return None

    def become(self, descriptors: list[int], folder: str, variables: dict[str, str]) -> None:
        """In a forked process: leaves the server's state and takes that of the program."""
        os.setsid()  # to be ended with its children
        self.selector.close()
        self.listener.close()
        for end, (_, connection) in self.programs.items():
            os.close(end)
            connection.close()
        for connection in self.stopping:
            connection.close()
        for descriptor, stream in zip(descriptors, STREAMS, strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.chdir(folder)
        set_by_import = {name: value for name, value in os.environ.items() if self.variables.get(name) != value}
        os.environ.clear()
        os.environ.update(set_by_import | variables)

    def end(self, descriptor: int) -> None:
        """A program has ended."""
        process, connection = self.programs.pop(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        self.selector.unregister(descriptor)
        os.close(descriptor)
        if connection in self.selector.get_map():
            self.selector.unregister(connection)
        answer(connection, code)

    def serve(self) -> list[str] | None:
        """The command of a program, in its process. None in that of the server, when it is to end."""
        while self.programs or not self.stopping:
            events = self.selector.select(None if self.programs else IDLE_SECONDS)
            if not events:
                break
            for key, _ in events:
                if key.fileobj is self.listener:
                    command = self.accept()
                    if command is not None:
                        return command
                elif key.data is None:
                    self.end(key.fd)
                elif key.fileobj.fileno() >= 0:  # who asked has ended, the program has not
                    kill(key.data)
                    self.selector.unregister(key.fileobj)
        os.unlink(os.path.basename(self.path))
        for connection in self.stopping:
            connection.close()
        return None


def start(path: str, modules: list[str]) -> list[str] | None:
    """Leaves a server behind, which answers when this returns. In a program's process, its command."""
    stop(path)  # of tests that were interrupted
    if os.path.exists(path):
        os.unlink(path)
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        sys.exit(0 if os.read(ready, 1) else f"the server has not started: see {path}.log")
    os.close(ready)
    os.setsid()
    log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream, descriptor in zip(STREAMS, (os.open(os.devnull, os.O_RDONLY), log, log), strict=True):
        os.dup2(descriptor, stream)
    variables = dict(os.environ)
    gc.disable()  # nothing of the modules is garbage
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            print(f"{module} is not there", flush=True)
    gc.freeze()  # no process looks through them at its end
    gc.enable()
    server = Server(path, variables)
    os.write(told, b"1")
    os.close(told)
    command = server.serve()
    if command is not None and "jax" in sys.modules:
        sys.meta_path.insert(0, ImportOfJax(variables))
    return command


def main() -> list[str] | None:
    """The command of a program, in its process."""
    verb, path, *words = sys.argv[1:]
    if verb == "start":
        return start(path, words)
    sys.exit(run(path, words) if verb == "run" else stop(path))


if __name__ == "__main__":
    program = main()
    if program is not None:
        sys.argv[:] = program
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        module.__file__ = program[0]
        with open(program[0], "rb") as source:
            code = compile(source.read(), program[0], "exec")
        exec(code, module.__dict__)
