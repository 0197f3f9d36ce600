#!/usr/bin/python3
"""Waiting for device memory: who is served when, and what ends a wait.

Stories of several clients on one simulated device of 64 MiB, told by the protocol.
"""
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import struct
import time
import unittest

from daemon_case import (CANCELLED, INVALID_REQUEST, MIB, NO_MEMORY, NOT_FOUND, STAGE,
                         UNCHUNKABLE_TOO_LARGE, DaemonCase, RawClient, wait_until)

LONG = 60.0  # longer than any test takes


class WaitCase(DaemonCase):
    options = ("--mode", "passive")

    def join(self, name, **options):
        """A client with one instance, "i"."""
        client = self.connect(name)
        client.instance = client.register("i", **options).instance_id
        client.blocks = {}  # what it holds: block -> its segments
        return client

    def process(self, size):
        """Another process with an instance that holds so many MiB, until it is killed."""
        process = subprocess.Popen(
            [sys.executable, __file__, "--hold", self.folder, self.daemon.path, str(size)],
            stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"held\n")
        return process

    def fixed(self, size, label="a"):
        return self.array(label, [size * MIB], unchunkable=True)

    def runs(self, n, label="a"):
        """n runs of 1 MiB each."""
        return self.array(label, [n, MIB], chunk_axis_index=0, total_runs=n)

    def ask(self, client, arrays, wait=None, max_chunks=None):
        """Send an Allocate; its number."""
        requests = self.messages.ArrayRequests(instance_id=client.instance, arrays=arrays)
        body = self.messages.Allocate(instance_id=client.instance, requests=[requests])
        if wait is not None:
            body.wait_ns = int(wait * 1e9)
        if max_chunks is not None:
            body.max_chunks = max_chunks
        return client.start("allocate", body)

    def give_back(self, client, block_ids, kept, **options):
        gone = [s for b in block_ids for s in client.blocks.pop(b) if s not in kept]
        if gone:
            client.send("give_back", self.messages.GiveBack(segment_ids=gone, **options))

    def granted(self, client, number):
        while number not in client.answers:
            message, fds = client.receive()
            if message.HasField("yield"):  # what it replaces is needed first
                wanted = getattr(message, "yield")
                self.give_back(client, wanted.block_ids, (), yield_id=wanted.yield_id)
            elif message.id == 0:
                client.events.append((message, fds))
            else:
                client.answers[message.id] = (message, fds)
        message, fds = client.finish(number)
        for fd in fds:
            os.close(fd)
        response = message.response
        kept = {s.segment_id for b in response.blocks for s in b.segments if s.held}
        self.give_back(client, response.dropped_blocks, kept)
        for block in response.blocks:  # one that it has already has no segments here
            if block.segments:
                client.blocks[block.block_id] = [s.segment_id for s in block.segments]
        return response

    def take(self, client, arrays, **options):
        return self.granted(client, self.ask(client, arrays, **options))

    def waiting(self, *clients):
        """The waiting list, once exactly these clients stand in it, in this order."""
        ids = [client.hello.hello.client_id for client in clients]
        return self.status_when(
            lambda status: [w["client"] for w in status["waiting"]] == ids,
            f"clients {ids} wait",
        )["waiting"]

    def id(self, client):
        return client.hello.hello.client_id

    def told(self, client, condition=lambda waiting: True):
        """The first Waiting event that fulfils the condition; the earlier ones are dropped."""
        while True:
            for at, (message, _) in enumerate(client.events):
                if message.HasField("waiting") and condition(message.waiting):
                    del client.events[: at + 1]
                    return message.waiting
            client.events.clear()
            client.events.append(client.receive())

    def assert_nothing_left(self):
        self.status_when(
            lambda s: s["lent_bytes"] == 0 and s["promised_bytes"] == 0 and not s["waiting"]
            and s["draining_bytes"] == 0
        )

    def cancel(self, client):
        return client.call("cancel", self.messages.Cancel(instance_id=client.instance))


class WaitTest(WaitCase):
    def tearDown(self):
        super().tearDown()
        self.doCleanups()
        self.assert_nothing_left()

    def test_first_come_first_served(self):
        holder, *others = [self.join(n) for n in ("holder", "one", "two", "three")]
        self.take(holder, [self.fixed(60)])
        numbers = []
        for at, (client, size) in enumerate(zip(others, (30, 20, 50))):
            numbers.append(self.ask(client, [self.fixed(size)], wait=LONG))
            waiting = self.waiting(*others[: at + 1])
            self.assertEqual(waiting[at]["position"], at + 1)
            self.assertEqual(waiting[at]["asked_bytes"], size * MIB)
            self.assertEqual(waiting[at]["holders"], [self.id(holder)])
            self.assertEqual(waiting[at]["instance"], "i")
            self.assertTrue(waiting[at]["reason"])
        states = {c["id"]: c["state"] for c in self.status()["clients"]}
        self.assertEqual([states[self.id(c)] for c in others], ["waiting"] * 3)
        event = self.told(others[2])
        self.assertEqual((event.position, event.asked), (3, 50 * MIB))
        self.assertEqual(event.request_id, numbers[2])
        self.assertEqual(list(event.holders), [self.id(holder)])
        holder.release(holder.instance)
        self.granted(others[0], numbers[0])
        self.granted(others[1], numbers[1])
        event = self.told(others[2], lambda w: w.position == 1)
        self.assertEqual(self.waiting(others[2])[0]["position"], 1)
        self.assertEqual(self.waiting(others[2])[0]["holders"],
                         [self.id(others[0]), self.id(others[1])])
        others[0].release(others[0].instance)
        others[1].release(others[1].instance)
        self.granted(others[2], numbers[2])

    def test_nobody_passes_the_first(self):
        holder, first, late, quick = [self.join(n) for n in ("holder", "first", "late", "quick")]
        self.take(holder, [self.fixed(40)])
        number = self.ask(first, [self.fixed(50)], wait=LONG)
        self.waiting(first)
        # 24 MiB are free, and 8 would fit: but not before the first.
        result = self.refused(self.take, quick, [self.fixed(8)])
        self.assertEqual(result.code, NO_MEMORY)
        self.assertIn("wait", result.text)
        late_number = self.ask(late, [self.fixed(8)], wait=LONG)
        self.waiting(first, late)
        holder.release(holder.instance)
        self.granted(first, number)
        self.granted(late, late_number)
        self.take(quick, [self.fixed(2)])

    def test_what_needs_no_memory_is_served_at_once(self):
        holder, first = self.join("holder"), self.join("first")
        self.take(holder, [self.fixed(40)])
        number = self.ask(first, [self.fixed(50)], wait=LONG)
        self.waiting(first)
        same = self.take(holder, [self.fixed(40)])
        self.assertFalse([s for b in same.blocks for s in b.segments if not s.held])
        self.take(holder, [self.array("p", [MIB], memory=self.messages.PINNED)])
        self.take(holder, [self.fixed(40)], wait=LONG)
        # Less of it: what it gives up backs it, whoever waits.
        self.take(holder, [self.fixed(36)])
        self.waiting(first)
        self.assertLessEqual(self.status()["lent_bytes"], 40 * MIB)
        holder.release(holder.instance)
        self.granted(first, number)

    def test_a_batch_that_can_be_cut_waits_for_its_share(self):
        holder, other = self.join("holder"), self.join("other")
        self.process(0)
        self.take(holder, [self.fixed(48)])
        # 64 runs of 1 MiB; an equal share is 32 MiB: 2 chunks are enough, 4 too many.
        number = self.ask(other, [self.runs(64)], wait=LONG)
        waiting = self.waiting(other)[0]
        self.assertEqual((waiting["max_chunks"], waiting["asked_bytes"]), (2, 64 * MIB))
        self.take(holder, [self.fixed(30)])
        self.assertEqual(self.granted(other, number).chunks, 2)

    def test_a_batch_says_how_far_it_may_be_cut(self):
        holder, other = self.join("holder"), self.join("other")
        self.take(holder, [self.fixed(48)])
        self.assertEqual(self.take(other, [self.runs(64)], wait=LONG, max_chunks=4).chunks, 4)
        other.release(other.instance)
        number = self.ask(other, [self.runs(64)], wait=LONG, max_chunks=1)
        self.assertEqual(self.waiting(other)[0]["max_chunks"], 1)
        holder.release(holder.instance)
        self.assertEqual(self.granted(other, number).chunks, 1)
        # Nobody can wait for fewer chunks than an empty device would give.
        other.release(other.instance)
        self.assertEqual(self.take(other, [self.runs(128)], wait=LONG, max_chunks=1).chunks, 2)

    def test_when_the_time_is_over_it_takes_what_there_is(self):
        holder, other = self.join("holder"), self.join("other")
        self.take(holder, [self.fixed(48)])
        begun = time.monotonic()
        response = self.take(other, [self.runs(64)], wait=0.3)
        self.assertGreaterEqual(time.monotonic() - begun, 0.3)
        self.assertEqual((response.chunks, response.chunk_length), (4, 16))

    def test_or_says_no_memory(self):
        holder, other = self.join("holder"), self.join("other")
        self.take(holder, [self.fixed(48)])
        begun = time.monotonic()
        result = self.refused(self.take, other, [self.fixed(20)], wait=0.3)
        self.assertEqual(result.code, NO_MEMORY)
        self.assertEqual((result.asked, result.free), (20 * MIB, 16 * MIB))
        self.assertGreaterEqual(time.monotonic() - begun, 0.3)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(self.status()["waiting"], [])
        self.take(other, [self.fixed(16)])  # it left nothing behind

    def test_behind_others_the_time_ends_too(self):
        holder, first, second = [self.join(n) for n in ("holder", "first", "second")]
        self.take(holder, [self.fixed(40)])
        number = self.ask(first, [self.fixed(50)], wait=LONG)
        self.waiting(first)
        result = self.refused(self.take, second, [self.fixed(8)], wait=0.2)
        self.assertEqual(result.code, NO_MEMORY)
        self.waiting(first)
        self.cancel(first)
        self.assertEqual(self.refused(first.finish, number).code, CANCELLED)

    def test_what_an_empty_device_could_not_serve_is_refused_at_once(self):
        holder, other = self.join("holder"), self.join("other")
        self.take(holder, [self.fixed(48)])
        begun = time.monotonic()
        result = self.refused(self.take, other, [self.fixed(66)], wait=LONG)
        self.assertEqual(result.code, UNCHUNKABLE_TOO_LARGE)
        self.assertLess(time.monotonic() - begun, 10)
        # The whole device, though, is something to wait for.
        number = self.ask(other, [self.fixed(64)], wait=LONG)
        self.waiting(other)
        holder.release(holder.instance)
        self.granted(other, number)

    def test_37_a_time_that_is_none_is_refused(self):
        client = self.join("client")
        for wait_ns in (-1, -(1 << 63)):
            requests = self.messages.ArrayRequests(instance_id=client.instance,
                                                   arrays=[self.fixed(2)])
            body = self.messages.Allocate(instance_id=client.instance, requests=[requests],
                                          wait_ns=wait_ns)
            self.assertEqual(self.refused(client.call, "allocate", body).code, INVALID_REQUEST)
        # The longest there is does not overflow.
        body.wait_ns = (1 << 63) - 1
        self.granted(client, client.start("allocate", body))
        holder = self.join("holder")
        self.take(holder, [self.fixed(48)])
        number = client.start("allocate", self.messages.Allocate(
            instance_id=client.instance, wait_ns=(1 << 63) - 1,
            requests=[self.messages.ArrayRequests(instance_id=client.instance,
                                                  arrays=[self.fixed(20)])]))
        self.waiting(client)
        holder.release(holder.instance)
        self.granted(client, number)

    def test_cancel(self):
        holder, first, second = [self.join(n) for n in ("holder", "first", "second")]
        self.take(holder, [self.fixed(40)])
        self.assertEqual(self.refused(self.cancel, first).code, NOT_FOUND)
        before = self.status()
        number = self.ask(first, [self.fixed(50)], wait=LONG)
        self.waiting(first)
        behind = self.ask(second, [self.fixed(8)], wait=LONG)
        self.waiting(first, second)
        self.cancel(first)
        self.assertEqual(self.refused(first.finish, number).code, CANCELLED)
        self.granted(second, behind)  # nobody is before it any more
        second.release(second.instance)
        self.waiting()
        after = self.status_when(lambda s: s["lent_bytes"] == before["lent_bytes"])
        self.assertEqual(after["promised_bytes"], 0)
        self.assertEqual([c["state"] for c in after["clients"]], ["working", "idle", "working"])
        self.assertEqual(after["clients"][1], before["clients"][1])
        self.assertEqual(self.refused(self.cancel, first).code, NOT_FOUND)
        self.take(first, [self.fixed(24)])

    def test_a_waiter_that_dies_leaves_no_trace(self):
        holder, first, second = [self.join(n) for n in ("holder", "first", "second")]
        self.take(holder, [self.fixed(40)])
        fds = self.daemon.fds()
        for _ in range(20):
            gone = self.join("gone")
            self.ask(gone, [self.fixed(60)], wait=LONG)
            self.waiting(gone)
            gone.socket.close()
        self.waiting()
        wait_until(lambda: self.daemon.fds() < fds + 10, "their descriptors are closed")
        gone = self.join("gone")
        self.ask(gone, [self.fixed(60)], wait=LONG)
        self.waiting(gone)
        number = self.ask(first, [self.fixed(10)], wait=LONG)
        self.waiting(gone, first)
        gone.socket.close()
        self.granted(first, number)
        self.waiting()
        self.assertEqual(self.status()["promised_bytes"], 0)
        self.take(second, [self.fixed(14)])

    def test_an_instance_that_goes_waits_no_more(self):
        holder, other = self.join("holder"), self.join("other")
        self.take(holder, [self.fixed(40)])
        number = self.ask(other, [self.fixed(50)], wait=LONG)
        self.waiting(other)
        other.call("unregister_instance",
                   self.messages.UnregisterInstance(instance_id=other.instance))
        self.assertEqual(self.refused(other.finish, number).code, CANCELLED)
        self.waiting()

    def test_a_circle_can_be_seen_and_ends(self):
        one, two = self.join("one"), self.join("two")
        self.take(one, [self.fixed(30)])
        self.take(two, [self.fixed(30)])
        first = self.ask(one, [self.fixed(20, "b")], wait=1)
        second = self.ask(two, [self.fixed(20, "b")], wait=LONG)
        waiting = self.waiting(one, two)
        self.assertEqual(waiting[0]["holders"], [self.id(two)])
        self.assertEqual(waiting[1]["holders"], [self.id(one)])
        self.assertEqual(self.refused(one.finish, first).code, NO_MEMORY)
        self.waiting(two)
        one.release(one.instance)
        self.granted(two, second)

    def test_its_own_release_can_end_a_wait(self):
        client = self.join("client")
        other = client.register("other", group="default").instance_id
        self.take(client, [self.fixed(40)])
        number = self.ask(client, [self.fixed(40, "b")], wait=LONG)
        waiting = self.waiting(client)[0]
        self.assertEqual(waiting["holders"], [self.id(client)])
        client.release(client.instance, ["a"])
        self.granted(client, number)
        client.release(client.instance)
        client.call("unregister_instance", self.messages.UnregisterInstance(instance_id=other))

    def test_what_others_of_the_user_owe_delays_nobody(self):
        """Who gives up what it replaces waits for that, not for its neighbours'."""
        owing, asking = self.join("owing"), self.join("asking")
        self.take(owing, [self.fixed(10)])
        self.take(asking, [self.fixed(40)])
        number = self.ask(owing, [self.fixed(8)])  # granted: 10 MiB are to be given back
        while number not in owing.answers:
            message, fds = owing.receive()
            owing.answers[message.id] = (message, fds)
        begin = time.monotonic()
        self.take(asking, [self.fixed(38)])  # 40 + 38 do not fit: it yields
        self.assertLess(time.monotonic() - begin, 2)  # the other one has 5 s
        self.granted(owing, number)
        self.take(owing, [self.fixed(10)])  # and is still there

    def test_a_second_allocate_of_the_group_queues_behind(self):
        holder, client = self.join("holder"), self.join("client")
        other = client.register("other", group="default").instance_id
        self.take(holder, [self.fixed(40)])
        number = self.ask(client, [self.fixed(50)], wait=LONG)
        self.waiting(client)
        second = client.start("allocate", self.messages.Allocate(
            instance_id=other, requests=[self.messages.ArrayRequests(
                instance_id=other, arrays=[self.fixed(2)])]))
        client.call("ping", self.messages.Ping())
        self.assertNotIn(second, client.answers)
        holder.release(holder.instance)
        self.granted(client, number)
        self.granted(client, second)

    def test_a_death_ends_a_wait(self):
        holder = self.process(48)
        client = self.join("client")
        number = self.ask(client, [self.fixed(50)], wait=LONG)
        self.waiting(client)
        holder.kill()
        self.granted(client, number)

    def test_a_change_of_limits_is_seen(self):
        holder, client = self.join("holder"), self.join("client")
        self.take(holder, [self.fixed(40)])
        number = self.ask(client, [self.fixed(50)], wait=LONG)
        self.waiting(client)
        with contextlib.closing(RawClient(self.messages, self.daemon.path, "admin",
                                          tool=True)) as admin:
            admin.call("set_limit", self.messages.SetLimit(name="client", size=20 * MIB))
            # Nothing waits for a ceiling.
            self.assertEqual(self.refused(client.finish, number).code, UNCHUNKABLE_TOO_LARGE)
            admin.call("set_limit", self.messages.SetLimit(name="client", none=True))

    def test_people_see_who_waits(self):
        holder, client = self.join("holder"), self.join("client")
        self.take(holder, [self.fixed(40)])
        number = self.ask(client, [self.fixed(50)], wait=LONG)
        self.waiting(client)
        shown = subprocess.run([STAGE / "cubiememctl", "-s", self.daemon.path, "status"],
                               stdout=subprocess.PIPE, check=True, text=True).stdout
        rows = shown[shown.index("WAITING"):].splitlines()
        self.assertEqual(rows[1].split()[:5], ["1", f"{self.id(client)}/i", "50", "MiB", "1"])
        self.assertIn(f" {self.id(holder)} ", rows[1])
        holder.release(holder.instance)
        self.granted(client, number)
        shown = subprocess.run([STAGE / "cubiememctl", "-s", self.daemon.path, "status"],
                               stdout=subprocess.PIPE, check=True, text=True).stdout
        self.assertNotIn("WAITING", shown)

    def test_the_device_is_read_while_somebody_waits_and_not_otherwise(self):
        holder, client = self.join("holder"), self.join("client")
        self.take(holder, [self.fixed(40)])

        def wakeups(seconds):
            path = f"/proc/{self.daemon.process.pid}/task"
            def count():
                total = 0
                for task in os.listdir(path):
                    with open(f"{path}/{task}/status", encoding="ascii") as status:
                        line = next(x for x in status if x.startswith("voluntary_ctxt"))
                    total += int(line.split()[1])
                return total
            before = count()
            time.sleep(seconds)
            return count() - before

        number = self.ask(client, [self.fixed(50)], wait=LONG)
        self.waiting(client)
        self.assertGreaterEqual(wakeups(1), 5)
        self.cancel(client)
        self.refused(client.finish, number)
        self.status_when(lambda s: s["draining_bytes"] == 0)
        time.sleep(0.3)
        if "TSAN_OPTIONS" not in os.environ:  # it has a thread of its own
            self.assertEqual(wakeups(1), 0)

    def test_nothing_waits_for_a_cap(self):
        with contextlib.closing(RawClient(self.messages, self.daemon.path, "admin",
                                          tool=True)) as admin:
            admin.call("set_mode", self.messages.SetMode(mode="active"))
            try:
                small = self.join("small", proportion=0.25)
                self.assertEqual(self.take(small, [self.runs(64)], wait=LONG, max_chunks=1).chunks,
                                 4)
                result = self.refused(self.take, small, [self.fixed(20, "b")], wait=LONG)
                self.assertEqual((result.code, result.limited_by), (UNCHUNKABLE_TOO_LARGE, "cap"))
            finally:
                admin.call("set_mode", self.messages.SetMode(mode="passive"))


class EvictWaitTest(WaitCase):
    options = ("--mode", "passive", "--evict-timeout", "0.2")

    def answer_invalidate(self, client, busy):
        while True:
            message, _ = client.receive()
            if message.HasField("invalidate"):
                client.send("evict_reply", self.messages.EvictReply(
                    evict_id=message.invalidate.evict_id, busy=busy))
                return

    def idle(self, client):
        """Its owner's work word says that all was used that was granted."""
        reply = client.reply
        with mmap.mmap(client.hello_fds[0], client.hello.hello.control_page_size) as page:
            at = reply.owner_slot * 64
            granted = struct.unpack_from("<Q", page, at + 8)[0]
            struct.pack_into("<Q", page, at + 16, granted)

    def test_an_eviction_ends_a_wait(self):
        holder = self.connect("holder")
        holder.reply = holder.register("i", evictable=True)
        holder.blocks = {}
        holder.instance = holder.reply.instance_id
        self.take(holder, [self.fixed(40)])
        client, late = self.join("client"), self.join("late")
        number = self.ask(client, [self.fixed(50)], wait=LONG)  # what was not used is not taken
        self.waiting(client)
        behind = self.ask(late, [self.fixed(4)], wait=LONG)
        self.waiting(client, late)
        self.idle(holder)  # nobody tells the daemon
        self.answer_invalidate(holder, busy=True)
        self.waiting(client, late)
        self.answer_invalidate(holder, busy=False)  # it is asked again
        self.granted(client, number)
        self.granted(late, behind)


def hold(folder, path, size):
    sys.path.insert(0, folder)
    import cubiemem_pb2 as messages
    client = RawClient(messages, path, "doomed")
    instance = client.register("i").instance_id
    client.allocate(instance, [messages.ArrayRequest(label="a", shape=[int(size) * MIB], dtype="uint8",
                                                     unchunkable=True)])
    print("held", flush=True)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold"]:
        hold(*sys.argv[2:])
    unittest.main()
