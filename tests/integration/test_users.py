#!/usr/bin/python3
"""Users kept apart: rights, memory, ceilings, limits, PID namespaces.

What needs another user is skipped without root.
"""
import contextlib
import mmap
import os
import shutil
import stat
import time
import unittest

from daemon_case import (
    HANDLE_KIND, LIMIT, MIB, STAGE, Daemon, DaemonCase, RawClient, Refused, needs_root,
)

NOGROUP, DAEMON_GROUP = 65534, 1  # of every Debian: "nogroup", "daemon"
STRANGER = (65533, 65533, [])
MEMBER = (65533, 65533, [NOGROUP])
OTHER = (65532, 65532, [NOGROUP])
ADMIN = (65531, 65531, [NOGROUP, DAEMON_GROUP])


def write(fds, byte):
    for fd in fds.values():
        with mmap.mmap(fd, 0) as memory:
            memory[:] = bytes([byte]) * len(memory)
        os.close(fd)


def content(fds):
    """The bytes that occur in these segments."""
    found = set()
    for fd in fds.values():
        with mmap.mmap(fd, 0) as memory:
            found |= set(memory[:])
        os.close(fd)
    return sorted(found)


class UsersCase(DaemonCase):
    options = ("--socket-group", "nogroup", "--admin-group", "daemon")

    def client(self, name="test", **hello):
        """One that the child of a test closes by ending."""
        return RawClient(self.messages, self.daemon.path, name, **hello)

    def is_quiet(self):
        self.status_when(lambda s: not s["clients"]
                         and s["lent_bytes"] == s["draining_bytes"] == 0)


@needs_root
class RightsTest(UsersCase):
    def test_case_36_the_sockets_group_may_connect_and_others_are_told(self):
        mode = os.stat(self.daemon.path)
        self.assertEqual((stat.S_IMODE(mode.st_mode), mode.st_gid), (0o660, NOGROUP))
        self.assertEqual(self.ctl("ping", ids=MEMBER).returncode, 0)
        self.assertEqual(self.ctl("ping", ids=(65533, NOGROUP, [])).returncode, 0)
        start = time.monotonic()
        done = self.ctl("status", ids=STRANGER)
        self.assertLess(time.monotonic() - start, 2)
        self.assertEqual(done.returncode, 4)
        for words in ("permission denied", self.daemon.path, "group nogroup"):
            self.assertIn(words, done.stderr)

    def test_case_36_mode_and_group_whatever_the_umask(self):
        for umask in (0o077, 0o000):
            folder = os.path.join(self.folder, f"umask-{umask}")
            os.mkdir(folder)
            daemon = Daemon(folder, "sim:8MiB,umask", "--socket-group", "nogroup", umask=umask)
            try:
                found = os.stat(daemon.path)
                self.assertEqual((stat.S_IMODE(found.st_mode), found.st_gid), (0o660, NOGROUP))
            finally:
                self.assertEqual(daemon.stop(), 0)

    def test_the_administrators_group_may_steer(self):
        """By primary group and by a supplementary one."""
        for ids in (ADMIN, (65531, DAEMON_GROUP, [NOGROUP])):
            done = self.ctl("set-mode", "active", ids=ids)
            self.assertEqual(done.returncode, 0, done.stderr)
        for verb in (("set-mode", "passive"), ("set-limit", "--daemon", "1MiB"), ("drain",)):
            done = self.ctl(*verb, ids=MEMBER)
            self.assertEqual(done.returncode, 4)
            self.assertIn("administrators", done.stderr)
        self.assertEqual(self.ctl("status", ids=MEMBER).returncode, 0)  # seeing needs no right
        self.assertEqual(self.status()["daemon"]["mode"], "active")

    def test_a_client_may_change_its_own_quota_only(self):
        owner = self.connect("owner")
        owner.register("mine")
        target = owner.hello.hello.client_id

        def try_all():
            client = self.client()
            number = client.register("own").instance_id
            set_proportion = self.messages.SetProportion
            client.call("set_proportion", set_proportion(instance_id=number, proportion=0.1))
            codes = []
            for body in (set_proportion(client_id=target, instance_name="mine", proportion=0.1),
                         set_proportion(instance_name="mine", proportion=0.1)):
                try:
                    client.call("set_proportion", body)
                    codes.append(0)
                except Refused as refused:
                    codes.append(refused.result.code)
            return codes

        self.assertEqual(self.as_user(MEMBER, try_all), [-13, -13])


@needs_root
class MemoryTest(UsersCase):
    def fill_and_release(self, byte, size=64 * MIB):
        client = self.client("writer")
        number = client.register("solver", proportion=1.0).instance_id
        write(client.allocate(number, [self.array("x", [size])])[1], byte)
        client.release(number)
        client.call("ping", self.messages.Ping())
        return True

    def read_fresh(self, size=64 * MIB):
        client = self.client("reader")
        number = client.register("solver", proportion=1.0).instance_id
        return content(client.allocate(number, [self.array("x", [size])])[1])

    def test_memory_passes_between_users_through_the_driver_only(self):
        self.as_user(MEMBER, lambda: self.fill_and_release(0x5A))
        self.assertEqual(self.status_when(lambda s: not s["clients"])["cached_bytes"], 64 * MIB)
        # The same user gets what it wrote: so a leak would be seen.
        self.assertEqual(self.as_user(MEMBER, self.read_fresh), [0x5A])
        self.is_quiet()
        # It died with it; now it is the driver's, and clean.
        self.assertEqual(self.as_user(OTHER, self.read_fresh), [0])
        self.is_quiet()
        self.as_user(MEMBER, lambda: self.fill_and_release(0x5A))
        for ids in (OTHER, (0, 0, [])):
            with self.subTest(ids):
                self.assertEqual(self.as_user(ids, self.read_fresh), [0])
                self.is_quiet()
                self.as_user(MEMBER, lambda: self.fill_and_release(0x5A))

    def test_a_small_request_of_another_user_does_not_take_from_the_pool(self):
        self.as_user(MEMBER, lambda: self.fill_and_release(0x77, 8 * MIB))
        before = self.status_when(lambda s: not s["clients"])["cached_bytes"]
        self.assertEqual(self.as_user(OTHER, lambda: self.read_fresh(2 * MIB)), [0])
        self.is_quiet()
        self.assertEqual(self.status()["cached_bytes"], before)

    def test_case_19_connections_of_one_user_and_name_share_the_ceiling(self):
        self.assertEqual(self.ctl("set-limit", "--name", "worker", "16MiB").returncode, 0)
        self.addCleanup(self.ctl, "set-limit", "--name", "worker", "none")

        def four_workers():
            held = 0
            clients = [self.client("worker") for _ in range(4)]
            for client in clients:
                number = client.register("solver", proportion=0.25).instance_id
                try:
                    _, fds = client.allocate(
                        number, [self.array("x", [8 * MIB], unchunkable=True)])
                    held += 8
                except Refused as refused:
                    if refused.result.limited_by != "name worker":
                        raise
            return held

        self.assertEqual(self.as_user(MEMBER, four_workers), 16)
        self.is_quiet()
        holder = self.connect("worker")  # root's name counts for root
        number = holder.register("solver").instance_id
        for fd in holder.allocate(number, [self.array("x", [16 * MIB])])[1].values():
            os.close(fd)
        holder.call("unregister_instance", self.messages.UnregisterInstance(instance_id=number))
        self.assertEqual(self.as_user(OTHER, four_workers), 16)


@needs_root
class LimitsTest(UsersCase):
    """Limits small enough to meet, by the seam of the test build."""

    program = "cubiememd-seams"
    environment = {"CUBIEMEM_TEST_USER_LIMITS": "4,6,8,100"}

    def test_sessions(self):
        def try_five():
            clients = [self.client() for _ in range(4)]
            self.client("viewer", tool=True).close()
            try:
                self.client()
            except Refused as refused:
                clients.pop().close()
                time.sleep(0.2)
                self.client()
                return [refused.result.code, refused.result.text]
            return []

        code, text = self.as_user(MEMBER, try_five)
        self.assertEqual(code, LIMIT)
        self.assertIn("uid 65533 has 4 sessions", text)
        for _ in range(6):  # root is not limited
            self.connect()

    def test_connections_that_say_nothing(self):
        def flood():
            import socket
            kept = []
            for _ in range(300):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                sock.connect(self.daemon.path)
                sock.settimeout(1)
                kept.append(sock)
            closed = 0
            for sock in kept[-20:]:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    closed += sock.recv(1) == b""
            return closed

        self.assertEqual(self.as_user(MEMBER, flood), 20)
        self.connect().call("ping", self.messages.Ping())
        self.assertIn("uid 65533 has 260 already", self.daemon.log())

    def test_instances(self):
        def try_seven():
            clients = [self.client(), self.client()]
            for i in range(6):
                clients[i % 2].register(f"i{i}")
            try:
                clients[0].register("seventh")
            except Refused as refused:
                clients[1].close()
                time.sleep(0.2)
                clients[0].register("seventh")
                return [refused.result.code, refused.result.text]
            return []

        code, text = self.as_user(MEMBER, try_seven)
        self.assertEqual(code, LIMIT)
        self.assertIn("'seventh'", text)
        self.assertIn("a user 6", text)

    def test_messages_come_at_the_users_pace_and_others_do_not_wait(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups(MEMBER[2])
            os.setresgid(*[MEMBER[1]] * 3)
            os.setresuid(*[MEMBER[0]] * 3)
            client = self.client("chatty")
            start = time.monotonic()
            for number in range(1000, 1250):
                client.send("ping", self.messages.Ping(), number)
            answers = [client.receive()[0] for _ in range(250)]
            took = time.monotonic() - start
            fine = [a.id for a in answers] == list(range(1000, 1250))
            os.write(writer, f"{took if fine else -1}".encode())
            os._exit(0)
        os.close(writer)
        time.sleep(0.3)
        watcher, slowest = self.connect("watcher"), 0
        for _ in range(100):
            start = time.monotonic()
            watcher.call("ping", self.messages.Ping())
            slowest = max(slowest, time.monotonic() - start)
        with os.fdopen(reader) as pipe:
            took = float(pipe.read())
        os.waitpid(child, 0)
        self.assertGreater(took, 1.3)  # 100 at once, 150 more at 100 a second
        self.assertLess(took, 10)
        self.assertLess(slowest, 0.1)


class RequestsLimitTest(UsersCase):
    """Requests of one user over its sessions: Invalidate is left unanswered, so that
    Allocates are under way, and more park behind them."""

    program = "cubiememd-seams"
    options = (*(UsersCase.options if os.geteuid() == 0 else ()), "--evict-timeout", "1",
               "--mode", "passive")
    environment = {"CUBIEMEM_TEST_USER_LIMITS": "100,100,8,100000"}

    @needs_root
    def test_requests(self):
        holder = self.connect("holder")
        solver = holder.register("solver", evictable=True)
        for fd in holder.allocate(solver.instance_id,
                                  [self.array("x", [64 * MIB])])[1].values():
            os.close(fd)
        self.use_grants(holder, solver)

        def ask_often():
            client, other = self.client("asker"), self.client("another")
            number = client.register("solver").instance_id
            requests = self.messages.ArrayRequests(
                instance_id=number, arrays=[self.array("x", [600000], unchunkable=True)])
            allocate = self.messages.Allocate(instance_id=number, requests=[requests])
            for request in range(100, 112):
                client.send("allocate", allocate, request)
            codes = []
            for _ in range(4):
                answer = client.receive()[0].result
                codes.append([answer.code, answer.text])
            try:
                other.call("ping", self.messages.Ping())
            except Refused as refused:
                codes.append([refused.result.code, refused.result.text])
            later = [client.receive()[0].result.code for _ in range(8)]
            other.call("ping", self.messages.Ping())
            return [codes, later]

        codes, later = self.as_user(MEMBER, ask_often)
        self.assertEqual([code for code, _ in codes], [LIMIT] * 5)
        self.assertIn("8 requests of uid 65533", codes[0][1])
        self.assertNotIn(LIMIT, later)  # one under way and seven behind it
        holder.call("ping", self.messages.Ping())

    def test_arrays_that_are_queued_over_many_groups(self):
        client = self.connect("hoarder")
        codes = []
        for i in range(20):
            number = client.register(f"i{i}", group=f"g{i}", proportion=0.001).instance_id
            arrays = [self.array(f"a{k}", [1]) for k in range(4000)]
            client.last_id += 1
            for part in range(8):
                message = self.messages.ClientMessage(id=client.last_id, part=part, more=part < 7)
                message.queue_requests.requests.instance_id = number
                message.queue_requests.requests.arrays.extend(arrays[part * 500:part * 500 + 500])
                client.socket.send(message.SerializeToString())
            answer = client.receive()[0]
            codes.append(answer.result.code)
        self.assertEqual(codes, [0] * 16 + [LIMIT] * 4)
        self.assertIn("a session has at most 65536", answer.result.text)


@needs_root
@unittest.skipUnless(shutil.which("unshare"), "needs unshare")
class NamespaceTest(UsersCase):
    """The daemon in a PID namespace of its own: it cannot see who connects."""

    prefix = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--")

    def test_case_39_the_connection_is_the_identity(self):
        clients = [self.connect(f"container {i}") for i in range(2)]
        instances = [c.register("solver") for c in clients]
        self.assertEqual([i.cap for i in instances][1], 32 * MIB)  # two processes
        status = self.status()
        self.assertEqual([c["pid"] for c in status["clients"]], [None, None])
        self.assertEqual([i["cap_bytes"] for c in status["clients"] for i in c["instances"]],
                         [32 * MIB, 32 * MIB])
        lines = [line.split() for line in self.ctl("clients").stdout.splitlines()[1:]]
        self.assertEqual([line[3] for line in lines], ["?", "?"])

    def test_case_40_no_legacy_handles_but_vmm_ones(self):
        with self.assertRaises(Refused) as refused:
            self.client("legacy", handle_kind=2)
        self.assertEqual(refused.exception.result.code, HANDLE_KIND)
        self.assertIn("PID namespace", refused.exception.result.text)
        client = self.connect("vmm")
        number = client.register("solver").instance_id
        _, fds = client.allocate(number, [self.array("x", [2 * MIB])])
        write(fds, 0x11)

    def test_nobody_is_signalled(self):
        client = self.connect("unseen")
        done = self.ctl("kick", str(client.hello.hello.client_id), "--kill")
        self.assertEqual(done.returncode, 5)
        self.assertIn("nobody was signalled", done.stderr)
        self.assertIn("pid ?", done.stderr)
        self.assert_closed(client.socket)


@needs_root
@unittest.skipUnless(shutil.which("unshare"), "needs unshare")
class ContainedClientTest(UsersCase):
    """Clients in PID namespaces of their own, which the daemon sees from outside."""

    def contained(self, function):
        """The function's result in a process that has pid 2 there."""
        def in_namespace():
            import ctypes
            if ctypes.CDLL(None, use_errno=True).unshare(0x20000000) != 0:  # CLONE_NEWPID
                raise OSError(ctypes.get_errno(), "unshare")
            return self.as_user((0, 0, []), lambda: [os.getpid(), function()])
        return self.as_user((0, 0, []), in_namespace)

    def test_case_39_equal_pids_are_not_equal_processes(self):
        def register():
            client = self.client("contained")
            return client.register("solver").cap
        other = self.connect("outside")
        other.register("solver")
        self.assertEqual(self.contained(register), [1, 32 * MIB])
        self.assertEqual(self.contained(register), [1, 32 * MIB])

    def test_case_40_legacy_handles_do_not_cross(self):
        def ask():
            try:
                self.client("legacy", handle_kind=2)
            except Refused as refused:
                return [refused.result.code, refused.result.text]
            return None
        _, (code, text) = self.contained(ask)
        self.assertEqual(code, HANDLE_KIND)
        self.assertIn("PID namespace", text)
        self.assertIsNone(self.as_user((0, 0, []), ask))  # here they do

        def use():
            client = self.client("vmm")
            number = client.register("solver").instance_id
            write(client.allocate(number, [self.array("x", [2 * MIB])])[1], 0x22)
            return self.status()["clients"][-1]["pid"] > 1
        self.assertEqual(self.contained(use), [1, True])


if __name__ == "__main__":
    unittest.main()
