"""A daemon on the simulated device for a test case, and what tests ask of it.

Skips the whole program (exit 77) where python3-protobuf is absent.
"""
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import google.protobuf  # noqa: F401
except ImportError:
    print("python3-protobuf is not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STAGE = pathlib.Path(os.environ.get("CUBIEMEM_STAGE", ROOT / "build" / "stage"))
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from raw_client import RawClient, Refused  # noqa: E402,F401

MIB = 1 << 20

(OK, INVALID_REQUEST, NOT_REGISTERED, ALREADY_REGISTERED, BAD_PROPORTION, QUOTA_OVERCOMMITTED,
 AUTO_POOL_TOO_SMALL, UNCHUNKABLE_TOO_LARGE, RUN_TOO_LARGE, TOO_LARGE, NO_MEMORY, BAD_MODE,
 NOT_FOUND, NOT_PERMITTED, LIMIT, TIMEOUT, CANCELLED, DRAINING, EVICTED, BUSY, CAPTURING, FORKED,
 IN_CALLBACK, DISCONNECTED, VERSION_MISMATCH, DEVICE_LOST, DEVICE_MISMATCH, HANDLE_KIND,
 HOST_MEMORY, NO_FDS) = range(0, -30, -1)


def messages_generate(folder):
    """The messages' classes, from the protocol's own description."""
    subprocess.run(
        ["protoc", f"--python_out={folder}", f"-I{ROOT / 'proto'}", "cubiemem.proto"], check=True
    )
    sys.path.insert(0, folder)
    import cubiemem_pb2

    return cubiemem_pb2


def wait_until(condition, what, seconds=10):
    """The condition's first true value; the test fails when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def die_with_parent():
    """A test that is killed leaves no daemon behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Daemon:
    """A cubiememd of its own, on a private socket; its log can be read."""

    def __init__(self, folder, device, *options, environment=None, program="cubiememd",
                 prefix=(), umask=-1):
        self.path = os.path.join(folder, "daemon.sock")
        self.log_path = os.path.join(folder, f"log-{time.monotonic_ns()}")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, STAGE / program, "--device", device, "--socket", self.path, *options],
                stderr=log, env={**os.environ, **(environment or {})},
                preexec_fn=die_with_parent, umask=umask,
            )
        self.in_namespace = bool(prefix)
        try:
            wait_until(self._listens, "the daemon listens", 30)
        except AssertionError:
            self.process.kill()
            raise

    def _listens(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"cubiememd ended with {self.process.returncode}: {self.log()}")
        return "serves" in self.log()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def pid(self):
        """Of the daemon itself, also where it is another program's child."""
        pid = self.process.pid
        if self.in_namespace:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
                pid = int(children.read().split()[0])
        return pid

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) << 10

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        """What it has computed so far: unlike real time, no matter of who else runs."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_seconds_in(self, seconds):
        before = self.cpu_seconds()
        time.sleep(seconds)
        return self.cpu_seconds() - before

    def stop(self):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            os.kill(self.pid(), signal.SIGTERM)
        return self.process.wait(30)


needs_root = unittest.skipUnless(os.geteuid() == 0, "another user can be had by root only")


class DaemonCase(unittest.TestCase):
    """A daemon for all tests of the class, checked for a clean end."""

    device = "sim:64MiB"
    options = ()
    environment = None
    program = "cubiememd"
    prefix = ()

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="cubiemem-case.")
        cls.folder = cls.scratch.name
        os.chmod(cls.folder, 0o755)
        cls.messages = messages_generate(cls.folder)
        cls.start_daemon()

    @classmethod
    def start_daemon(cls):
        cls.daemon = Daemon(cls.folder, cls.device, *cls.options, environment=cls.environment,
                            program=cls.program, prefix=cls.prefix)

    @classmethod
    def tearDownClass(cls):
        status = cls.daemon.stop()
        log = cls.daemon.log()
        cls.scratch.cleanup()
        assert status == 0, f"cubiememd ended with status {status}:\n{log}"

    def connect(self, name="test", **hello):
        client = RawClient(self.messages, self.daemon.path, name, **hello)
        self.addCleanup(client.close)
        return client

    def stranger(self):
        """A bare socket that has said nothing."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(sock.close)
        sock.connect(self.daemon.path)  # waits while the backlog is full
        sock.settimeout(10)
        return sock

    def assert_closed(self, sock):
        """The daemon has closed this connection."""
        with contextlib.suppress(ConnectionError):
            while sock.recv(65536):
                pass

    def status(self):
        with contextlib.closing(RawClient(self.messages, self.daemon.path, "status",
                                          tool=True)) as viewer:
            reply = viewer.call("status", self.messages.Status())[0].status
        return json.loads("".join(reply.json))

    def status_when(self, condition, what="the status is as expected"):
        """The first status that fulfils the condition."""
        last = {}

        def look():
            last.update(self.status())
            return condition(last)

        try:
            wait_until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(last)}") from None
        return last

    def ctl(self, *arguments, ids=None):
        """cubiememctl's CompletedProcess; ids: as this (uid, gid, groups)."""
        user = {} if ids is None else {"user": ids[0], "group": ids[1], "extra_groups": ids[2]}
        return subprocess.run([STAGE / "cubiememctl", "-s", self.daemon.path, *arguments],
                              capture_output=True, text=True, timeout=60, check=False, **user)

    def ctl_json(self, *arguments):
        """The document that a verb prints with --json; it must succeed."""
        done = self.ctl(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def as_user(self, ids, function):
        """What the function returns (as JSON) in a process of this (uid, gid, groups)."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                os.setgroups(ids[2])
                os.setresgid(ids[1], ids[1], ids[1])
                os.setresuid(ids[0], ids[0], ids[0])
                text = json.dumps({"value": function()})
            except BaseException as error:  # noqa: B902: told to the parent
                text = json.dumps({"error": f"{type(error).__name__}: {error}"})
            with os.fdopen(writer, "w") as pipe:
                pipe.write(text)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            outcome = json.loads(pipe.read() or "{}")
        os.waitpid(child, 0)
        self.assertNotIn("error", outcome)
        return outcome["value"]

    def array(self, label, shape, **options):
        options.setdefault("dtype", "uint8")
        return self.messages.ArrayRequest(label=label, shape=shape, **options)

    def use_grants(self, client, instance):
        """As the library does at the end of work: what was granted was used, so that its
        owner is idle. `instance` is the answer to register."""
        at = instance.owner_slot * 64  # proto/control.h: granted at 16, used at 24
        with mmap.mmap(client.hello_fds[0], client.hello.hello.control_page_size) as page:
            page[at + 24:at + 32] = page[at + 16:at + 24]

    def refused(self, call, *arguments, **options):
        """The Result of a call that must be refused."""
        with self.assertRaises(Refused) as refused:
            call(*arguments, **options)
        self.assertTrue(refused.exception.result.text)
        return refused.exception.result
