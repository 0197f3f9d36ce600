#!/usr/bin/python3
"""An administrator's hand on clients: evict, kick, drain; and requests for zeros."""
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import time
import unittest

from daemon_case import BUSY, DRAINING, MIB, STAGE, DaemonCase, RawClient, Refused, needs_root

STRANGER = (65534, 65534, [])


class AdminTest(DaemonCase):
    options = ("--evict-timeout", "0.5")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(cls.daemon.path, 0o666)  # others may try

    def holder(self, name="holder", size=4 * MIB, **options):
        """A client whose one instance holds an array."""
        client = self.connect(name)
        instance = client.register("solver", **options).instance_id
        _, fds = client.allocate(instance, [self.array("x", [size])])
        for fd in fds.values():
            os.close(fd)
        return client, instance

    def next_event(self, client, field):
        """The next event of this kind."""
        while True:
            message, fds = client.events.pop(0) if client.events else client.receive()
            if message.HasField(field):
                return getattr(message, field)
            self.assertEqual(fds, [])

    def evict_in_background(self, *target):
        return subprocess.Popen(
            [STAGE / "cubiememctl", "-s", self.daemon.path, "evict",
             *target], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    # ----------------------------------------------------------------- evict

    def test_evict_asks_the_owners_and_tells_what_came_back(self):
        client, instance = self.holder(evictable=True)
        target = str(client.hello.hello.client_id)
        tool = self.evict_in_background(target)
        asked = self.next_event(client, "invalidate")
        self.assertEqual(list(asked.instance_ids), [instance])
        client.send("evict_reply", self.messages.EvictReply(evict_id=asked.evict_id, busy=False))
        out, err = tool.communicate(timeout=20)
        self.assertEqual(tool.returncode, 0, err)
        self.assertIn("released 4 MiB", out)
        self.assertIn(f"evicting client {target}", err)
        self.assertIn("holds 4 MiB", err)
        status = self.status()
        self.assertEqual(status["lent_bytes"], 0)
        self.assertEqual(status["cached_bytes"] >= 4 * MIB, True)

    def test_evict_leaves_what_is_at_work_silent_or_without_a_hook(self):
        for options, answers, word in (({"evictable": True}, True, "1 are at work"),
                                       ({"evictable": True}, False, "1 did not answer"),
                                       ({}, False, "1 have no invalidate hook")):
            with self.subTest(word):
                client, _ = self.holder(**options)
                tool = self.evict_in_background(str(client.hello.hello.client_id))
                if answers:
                    asked = self.next_event(client, "invalidate")
                    client.send("evict_reply",
                                self.messages.EvictReply(evict_id=asked.evict_id, busy=True))
                _, err = tool.communicate(timeout=20)
                self.assertEqual(tool.returncode, 1)
                self.assertIn(word, err)
                self.assertEqual(self.status()["lent_bytes"], 4 * MIB)
                client.close()
                self.status_when(lambda s: not s["clients"] and s["lent_bytes"] == 0)

    def test_evict_one_instance_takes_its_owner_and_nobody_else(self):
        client = self.connect("two owners")
        for name, owner in (("a1", "a"), ("a2", "a"), ("b", "b")):
            number = client.register(name, owner=owner, evictable=True).instance_id
            for fd in client.allocate(number, [self.array("x", [2 * MIB])])[1].values():
                os.close(fd)
        tool = self.evict_in_background(f"{client.hello.hello.client_id}/a2")
        asked = self.next_event(client, "invalidate")
        self.assertEqual(sorted(asked.instance_ids), [1, 2])
        client.send("evict_reply", self.messages.EvictReply(evict_id=asked.evict_id))
        out, err = tool.communicate(timeout=20)
        self.assertEqual(tool.returncode, 0, err)
        self.assertIn("released 4 MiB of 1 owners", out)
        self.assertEqual(self.status()["lent_bytes"], 2 * MIB)

    def test_evict_when_asker_or_client_vanish(self):
        client, _ = self.holder(evictable=True)
        number = client.hello.hello.client_id
        asker = RawClient(self.messages, self.daemon.path, "asker", tool=True)
        asker.send("evict", self.messages.Evict(client_id=number), 77)
        asked = self.next_event(client, "invalidate")
        asker.close()
        self.assertEqual(len(self.status()["clients"]), 1)
        client.send("evict_reply", self.messages.EvictReply(evict_id=asked.evict_id, busy=True))
        tool = self.evict_in_background(str(number))
        self.next_event(client, "invalidate")
        client.close()
        _, err = tool.communicate(timeout=20)
        self.assertEqual(tool.returncode, 0, err)

    def test_two_orders_at_once(self):
        client, _ = self.holder(evictable=True)
        number = client.hello.hello.client_id
        first = self.evict_in_background(str(number))
        asked = self.next_event(client, "invalidate")
        asker = self.connect("asker", tool=True)
        self.assertEqual(self.refused(asker.call, "evict",
                                      self.messages.Evict(client_id=number)).code, BUSY)
        client.send("evict_reply", self.messages.EvictReply(evict_id=asked.evict_id))
        self.assertEqual(first.wait(20), 0)
        first.communicate()

    def test_nothing_held_is_nothing_to_do(self):
        client = self.connect("idle")
        client.register("solver", evictable=True)
        self.assertEqual(self.ctl_json("evict", str(client.hello.hello.client_id)),
                         {"released_bytes": 0, "owners": 0, "busy": 0, "silent": 0,
                          "unevictable": 0})

    def test_who_and_what_is_not_there(self):
        client, _ = self.holder()
        mine = client.hello.hello.client_id
        for arguments, status in ((("evict", "4711"), 5), (("evict", f"{mine}/nobody"), 5),
                                  (("kick", "4711"), 5), (("kick", "4711", "--kill"), 5),
                                  (("evict", "solver"), 2), (("evict", ""), 2),
                                  (("evict", f"{mine}/"), 2), (("kick", f"{mine}/solver"), 2),
                                  (("evict", "99999999999999999999999"), 2),
                                  (("kick", "-1"), 2), (("drain", "--kill"), 2),
                                  (("kick", str(mine), "--off"), 2)):
            with self.subTest(arguments):
                done = self.ctl(*arguments)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertTrue(done.stderr)

    @needs_root
    def test_only_administrators_may(self):
        client, _ = self.holder()
        mine = str(client.hello.hello.client_id)
        for arguments in (("evict", mine), ("kick", mine), ("kick", mine, "--kill"), ("drain",),
                          ("drain", "--off"), ("set-mode", "active"),
                          ("set-limit", "--uid", "1", "none"),
                          ("set-proportion", f"{mine}/solver", "0.5")):
            with self.subTest(arguments):
                done = self.ctl(*arguments, ids=STRANGER)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn("administrators", done.stderr)
        client.call("ping", self.messages.Ping())
        self.assertEqual(self.status()["daemon"]["state"], "ok")

    # ------------------------------------------------------------------ kick

    def test_kick_ends_the_session_and_signals_nobody(self):
        client, _ = self.holder()
        number = client.hello.hello.client_id
        done = self.ctl("kick", str(number))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"ending the session of client {number}", done.stderr)
        self.assertIn("administrator", self.next_event(client, "shutting_down").text)
        self.assert_closed(client.socket)
        self.status_when(lambda s: not s["clients"]
                         and s["lent_bytes"] == s["draining_bytes"] == 0)
        self.assertIn(f'client {number} ("holder"', self.daemon.log())

    def sleeper(self):
        """A process of its own that holds 2 MiB and sleeps: (process, client id)."""
        code = ("import sys, time; sys.path[:0] = sys.argv[1:3]\n"
                "import cubiemem_pb2 as m; from raw_client import RawClient\n"
                "c = RawClient(m, sys.argv[3], 'sleeper'); i = c.register('s').instance_id\n"
                "c.allocate(i, [m.ArrayRequest(label='x', dtype='int8', shape=[5])])\n"
                "print(c.hello.hello.client_id, flush=True); time.sleep(60)")
        process = subprocess.Popen(
            [sys.executable, "-c", code, self.folder, os.path.dirname(__file__), self.daemon.path],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, process.stdout.readline().strip()

    def test_kick_kill_ends_the_process(self):
        process, number = self.sleeper()
        done = self.ctl("kick", number, "--kill")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("killing the process of client", done.stderr)
        self.assertIn(f"pid {process.pid}", done.stderr)
        self.assertEqual(process.wait(20), -signal.SIGKILL)
        self.status_when(lambda s: not s["clients"] and s["draining_bytes"] == 0)

    def test_drain_waits_for_what_the_kicked_still_map(self):
        process, number = self.sleeper()
        self.addCleanup(self.ctl, "drain", "--off")
        self.assertEqual(self.ctl("kick", number).returncode, 0)
        process.kill()
        process.wait()
        done = self.ctl("drain", "--timeout", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.status()["draining_bytes"], 0)

    # ----------------------------------------------------------------- drain

    def test_drain_lets_nobody_new_in_and_waits_for_release(self):
        client, instance = self.holder()
        done = self.ctl("drain", "--timeout", "0.3")
        self.addCleanup(self.ctl, "drain", "--off")
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 client still holds memory", done.stderr)
        self.assertIn("holder", done.stderr)
        self.assertEqual(self.status()["daemon"]["state"], "draining")
        with self.assertRaises(Refused) as refused:
            RawClient(self.messages, self.daemon.path, "new")
        self.assertEqual(refused.exception.result.code, DRAINING)
        tool = subprocess.Popen([STAGE / "cubiememctl", "-s",
                                 self.daemon.path, "drain", "--timeout", "20"],
                                stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        self.assertIsNone(tool.poll())
        client.release(instance)
        out, err = tool.communicate(timeout=20)
        self.assertEqual(tool.returncode, 0, err)
        self.assertIn("nobody holds memory", out)
        client.call("ping", self.messages.Ping())  # who is in stays in
        self.assertEqual(self.ctl("drain", "--off").returncode, 0)
        self.connect("new")
        self.assertEqual(self.status()["daemon"]["state"], "ok")

    # ---------------------------------------------------------------- zeroed

    def write(self, fds, byte):
        for fd in fds.values():
            with mmap.mmap(fd, 0) as memory:
                memory[:] = bytes([byte]) * len(memory)
            os.close(fd)

    def content(self, fds):
        found = set()
        for fd in fds.values():
            with mmap.mmap(fd, 0) as memory:
                found |= set(memory[:])
            os.close(fd)
        return found

    def test_zeroed_arrays_never_lie_where_somebody_wrote(self):
        client = self.connect("writer")
        number = client.register("solver").instance_id
        for arrays in ([self.array("x", [4 * MIB])],
                       [self.array("x", [1000]), self.array("y", [3000])]):
            zeroed = [self.array(a.label, list(a.shape), zeroed=a.label == "x") for a in arrays]
            with self.subTest(len(arrays)):
                self.write(client.allocate(number, arrays)[1], 0xAB)
                client.release(number)
                self.status_when(lambda s: s["cached_bytes"] >= 2 * MIB)
                response, fds = client.allocate(number, arrays)  # as it is: dirty
                self.assertEqual(self.content(fds), {0xAB})
                before = [s.segment_id for b in response.blocks for s in b.segments]
                response, fds = client.allocate(number, zeroed)  # not kept, not cached
                self.assertEqual(self.content(fds), {0})
                self.assertEqual([a.zeroed for a in response.arrays],
                                 [a.zeroed for a in zeroed])
                self.assertEqual(len(response.dropped_blocks), 1)
                client.send("give_back", self.messages.GiveBack(segment_ids=before))
                client.release(number)
                self.status_when(lambda s: s["lent_bytes"] == 0)

    def test_zeroed_where_the_device_is_full(self):
        """What is cached goes to the driver, what is replaced is given up first."""
        client = self.connect("writer")
        number = client.register("solver", proportion=1.0).instance_id
        whole = [self.array("x", [64 * MIB])]
        self.write(client.allocate(number, whole)[1], 0xCD)
        client.release(number)
        self.status_when(lambda s: s["cached_bytes"] == 64 * MIB)
        zeroed = [self.array("x", [64 * MIB], zeroed=True)]
        response, fds = client.allocate(number, zeroed)
        self.assertEqual(self.content(fds), {0})
        held = [s.segment_id for b in response.blocks for s in b.segments]
        client.last_id += 1
        request = self.messages.ArrayRequests(instance_id=number, arrays=zeroed)
        client.send("allocate", self.messages.Allocate(instance_id=number, requests=[request]),
                    client.last_id)
        asked = self.next_event(client, "yield")
        client.send("give_back", self.messages.GiveBack(segment_ids=held, yield_id=asked.yield_id))
        message, fds = client.receive()
        self.assertEqual((message.id, message.result.code), (client.last_id, 0))
        self.assertEqual(len(fds), 1)
        with contextlib.closing(mmap.mmap(fds[0], 0)) as memory:
            self.assertEqual(memory[:MIB].count(0), MIB)
        os.close(fds[0])


if __name__ == "__main__":
    unittest.main()
