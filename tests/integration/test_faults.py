#!/usr/bin/python3
"""Every k-th call fails once, for k = 1, 2, ... until a conversation goes through.

The conversation does everything that a client can ask for. Whatever fails, the
daemon answers or ends the connection, nobody else notices, and behind it the
books are at zero and all descriptors are back. An answer that never comes is a
fault, too.
"""
import contextlib
import mmap
import os
import resource
import select
import socket
import struct
import unittest

from daemon_case import MIB, NO_FDS, UNCHUNKABLE_TOO_LARGE, DaemonCase, RawClient, Refused, wait_until

HANDLE_LEGACY = 2
DRIVER_CALLS = ("cuMemCreate", "cuMemExportToShareableHandle", "cuMemRelease",
                "nvmlDeviceGetMemoryInfo")


class Conversation:
    """Clients of one conversation; descriptors that they get are closed at once, for an
    open one is memory in use."""

    def __init__(self, case):
        self.case = case
        self.messages = case.messages
        self.clients = []

    def connect(self, name, **hello):
        client = RawClient(self.messages, self.case.daemon.path, name, **hello)
        self.clients.append(client)
        return client

    def close(self):
        for client in self.clients:
            for _, fds in client.events:
                self.keep_none(fds)
            client.close()

    def keep_none(self, fds):
        for fd in fds:
            os.close(fd)

    def allocate(self, client, instance_id, sizes, **options):
        arrays = [self.case.array(label, [size], **options) for label, size in sizes.items()]
        response, fds = client.allocate(instance_id, arrays)
        self.keep_none(fds.values())
        return response

    def allocated(self, client, number):
        """The answer to an Allocate that was sent before."""
        while True:
            message, fds = client.receive()
            self.keep_none(fds)
            if message.id != number:
                return message
            if message.result.code != 0:
                raise Refused(message.result)
            return message

    def use(self, client, instance):
        """Everything that the owner was granted was worked with: it is idle."""
        size = client.hello.hello.control_page_size
        with mmap.mmap(client.hello_fds[0], size) as page:
            slot = instance.owner_slot * 64
            page[slot + 24:slot + 32] = page[slot + 16:slot + 24]

    # ------------------------------------------------------------- the parts

    def names(self):
        client = self.connect("names")
        one = client.register("one", proportion=0.25)
        client.register("two", owner="pair", group="g")
        client.register("three", owner="pair", group="g", shared=True)
        m = self.messages
        client.call("set_proportion", m.SetProportion(instance_id=2, proportion=0.25))
        client.call("set_auto", m.SetAuto(instance_id=2))
        client.call("change_group", m.ChangeGroup(instance_id=1, group="h", shared=True))
        client.call("available", m.Available(instance_id=one.instance_id))
        _, fds = client.call("control_pages", m.ControlPages())
        self.keep_none(fds)
        client.call("set_limit", m.SetLimit(name="names", percent=50))
        client.call("set_limit", m.SetLimit(name="names", none=True))
        client.call("status", m.Status())
        client.call("unregister_instance", m.UnregisterInstance(instance_id=2))

    def memory(self):
        client = self.connect("memory")
        number = client.register("memory").instance_id
        response = self.allocate(client, number, {"x": 40 * MIB, "small": 100})
        big = next(a.block_id for a in response.arrays if a.label == "x")
        old = [s.segment_id for b in response.blocks if b.block_id == big for s in b.segments]
        # Does not fit beside the old: it has to come back before.
        requests = self.messages.ArrayRequests(
            instance_id=number,
            arrays=[self.case.array(label, [28 * MIB]) for label in ("x", "y")])
        client.send("allocate", self.messages.Allocate(instance_id=number, requests=[requests]),
                    100)
        message = self.allocated(client, 100)
        while message.id != 100:
            if message.HasField("yield"):
                client.send("give_back", self.messages.GiveBack(
                    segment_ids=old, yield_id=getattr(message, "yield").yield_id))
            message = self.allocated(client, 100)
        client.release(number, ["x", "y"])
        self.allocate(client, number, {"y": 2 * MIB, "p": 5}, memory=2)
        client.release(number)
        self.allocate(client, number, {f"a{i}": 100000 for i in range(70)})

    def sharing(self):
        pair = [self.connect(name) for name in ("left", "right")]
        for client in pair:
            client.register("member", group="all", shared=True)
            requests = self.messages.ArrayRequests(instance_id=1,
                                                   arrays=[self.case.array("x", [6 * MIB])])
            client.call("queue_requests", self.messages.QueueRequests(requests=requests))
        self.allocate(pair[0], 1, {"x": 4 * MIB})
        message, fds = pair[1].receive()
        self.keep_none(fds)
        if not message.HasField("response"):
            raise AssertionError(message)

    def eviction(self):
        idle, eager = self.connect("idle"), self.connect("eager")
        victim = idle.register("victim", evictable=True)
        self.allocate(idle, victim.instance_id, {"x": 40 * MIB})
        self.use(idle, victim)
        number = eager.register("eager").instance_id
        requests = self.messages.ArrayRequests(
            instance_id=number, arrays=[self.case.array("x", [50 * MIB])])
        eager.send("allocate", self.messages.Allocate(instance_id=number, requests=[requests]), 100)
        if eager.socket in select.select([idle.socket, eager.socket], [], [], 10)[0]:
            self.allocated(eager, 100)  # it failed before anybody was asked
        message, _ = idle.receive()
        idle.send("evict_reply", self.messages.EvictReply(evict_id=message.invalidate.evict_id))
        self.allocated(eager, 100)

    def legacy(self):
        client = self.connect("legacy", handle_kind=HANDLE_LEGACY)
        number = client.register("legacy").instance_id
        self.allocate(client, number, {"x": 4 * MIB, "y": 8 * MIB})
        client.release(number)


class FaultsCase(DaemonCase):
    options = ("--mode", "passive", "--evict-timeout", "0.3")

    def go_through(self, part):
        """True if nothing failed."""
        conversation = Conversation(self)
        try:
            getattr(conversation, part)()
            return True
        except (Refused, ConnectionError):
            return False
        finally:
            conversation.close()

    def nothing_is_left(self):
        status = self.status_when(
            lambda s: not s["clients"] and s["lent_bytes"] == s["draining_bytes"] == 0
            and s["promised_bytes"] == 0, "nobody holds anything")
        self.assertEqual(status["others_bytes"], 0)

    def fds_without_cached(self):
        return self.daemon.fds() - 2 * self.status()["cached_segments"]  # its own and the sim's


class FailedCallsTest(FaultsCase):
    program = "cubiememd-faults"

    @classmethod
    def setUpClass(cls):
        word = os.memfd_create("fail")
        os.truncate(word, 8)
        cls.word = mmap.mmap(word, 8)
        os.set_inheritable(word, True)
        cls.environment = {"CUBIEMEM_TEST_FAIL": f"/proc/{os.getpid()}/fd/{word}"}
        super().setUpClass()

    def set_word(self, value):
        self.word[:] = struct.pack("=Q", value)

    def get_word(self):
        return struct.unpack("=Q", self.word[:])[0]

    def ramp(self, part, step=1):
        self.assertTrue(self.go_through(part))
        self.nothing_is_left()
        before = self.fds_without_cached()
        k, failed = 1, 0
        while True:
            self.set_word(k)
            try:
                through = self.go_through(part)
            except Exception as error:
                raise AssertionError(f"call {k}: {error!r}\n{self.daemon.log()[-2000:]}") from error
            finally:
                left = self.get_word()
                self.set_word(0)
            failed += not through
            try:
                self.nothing_is_left()
            except (AssertionError, ConnectionError) as error:
                raise AssertionError(f"call {k}: {error!r}\n{self.daemon.log()[-2000:]}") from error
            if left > 0:
                break
            k += step
        self.assertTrue(through)
        self.assertGreater(failed, 0)
        wait_until(lambda: self.fds_without_cached() <= before, f"{before} descriptors again")
        return k

    def test_names(self):
        self.ramp("names")

    def test_memory(self):
        self.ramp("memory")

    def test_sharing(self):
        self.ramp("sharing")

    def test_eviction(self):
        self.ramp("eviction")

    def test_legacy(self):
        self.ramp("legacy")


class FailedDriverCallsTest(FaultsCase):
    parts = ("memory", "sharing", "eviction")

    def test_each_driver_call(self):
        for function in DRIVER_CALLS:
            k = 1
            while k <= 12:
                with self.subTest(f"{function}:{k}"):
                    self.assertEqual(type(self).daemon.stop(), 0, self.daemon.log())
                    result = 999 if function.startswith("nvml") else 2
                    first = k + 1 if function.startswith("nvml") else k  # the first is start-up's
                    type(self).environment = {
                        "CUBIEMEM_SIM_FAULTS": f"{function}:{first}={result}"}
                    self.start_daemon()
                    for part in self.parts:
                        self.go_through(part)
                    if function != "cuMemRelease":  # what is not released stays used
                        self.nothing_is_left()
                    self.assertTrue(self.go_through("names"))
                k += 1


class FewDescriptorsTest(FaultsCase):
    """A daemon that is short of descriptors says so, serves those it has, and recovers."""

    def setUp(self):
        self.nothing_is_left()
        few = self.daemon.fds() + 40
        # The soft limit alone: not everybody may raise a hard one again for the next test.
        hard = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (few, hard))
        self.addCleanup(self.nothing_is_left)

    def test_what_is_cached_does_not_keep_descriptors_from_those_who_come(self):
        conversation = Conversation(self)
        self.addCleanup(conversation.close)
        client = conversation.connect("many segments")
        number = client.register("many segments").instance_id
        conversation.allocate(client, number, {f"a{i}": 2 * MIB for i in range(8)})
        client.release(number)
        self.assertEqual(self.status()["cached_segments"], 8)
        for i in range(14):  # two descriptors each
            wait_until(lambda i=i: self.comes(conversation, f"client {i}"), "somebody more comes in")
        client.call("ping", self.messages.Ping())

    def is_granted(self, conversation, client, number):
        try:
            conversation.allocate(client, number, {"x": 60 * MIB}, chunk_axis_index=1)
            return True
        except Refused as refused:
            self.assertIn(refused.result.code, (NO_FDS, UNCHUNKABLE_TOO_LARGE))
            return False

    def comes(self, conversation, name):
        try:
            conversation.connect(name)
            return True
        except Refused as refused:
            self.assertEqual(refused.result.code, NO_FDS)
        except ConnectionError:
            pass
        return False

    def test_too_many_segments_are_refused_with_the_reason(self):
        conversation = Conversation(self)
        self.addCleanup(conversation.close)
        client = conversation.connect("too many segments")
        number = client.register("too many segments").instance_id
        with self.assertRaises(Refused) as refused:
            for i in range(32):
                conversation.allocate(client, number, {f"a{i}": 2 * MIB})
        self.assertEqual(refused.exception.result.code, NO_FDS)
        client.release(number)
        wait_until(lambda: self.is_granted(conversation, client, number), "it goes on")
        self.assertLess(self.daemon.cpu_seconds_in(1), 0.3)  # it does not spin

    def test_as_many_connections_as_there_are_descriptors(self):
        crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(100)]
        for sock in crowd:
            self.addCleanup(sock.close)
            sock.connect(self.daemon.path)
        self.assertLess(self.daemon.cpu_seconds_in(1), 0.3)
        for sock in crowd:
            sock.close()
        wait_until(lambda: self.comes(conversation := Conversation(self), "late")
                   and conversation.close() is None, "the next one is served")


if __name__ == "__main__":
    unittest.main()
