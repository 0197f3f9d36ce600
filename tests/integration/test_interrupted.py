#!/usr/bin/python3
"""Conversations that break off, or stand still, in the middle of an Allocate.

Every driver call that makes memory takes a while here, so that a transaction is
surely under way when its members leave, change their minds or fall silent.
"""
import contextlib
import os
import time
import unittest

from daemon_case import MIB, OK, DaemonCase

HANDLE_LEGACY = 2


class InterruptedTest(DaemonCase):
    environment = {"CUBIEMEM_SIM_FAULTS": "cuMemCreate:*~300ms"}
    options = ("--mode", "passive")

    def setUp(self):
        self.addCleanup(self.check_nothing_is_left)  # runs last

    def check_nothing_is_left(self):
        status = self.status_when(
            lambda s: not s["clients"] and s["lent_bytes"] == s["draining_bytes"] == 0
            and s["promised_bytes"] == 0, "nobody holds anything")
        self.assertEqual(status["others_bytes"], 0)

    def send_allocate(self, client, instance_id, arrays, number=1000):
        requests = self.messages.ArrayRequests(instance_id=instance_id, arrays=arrays)
        client.send("allocate", self.messages.Allocate(instance_id=instance_id,
                                                       requests=[requests]), number)

    def queue(self, client, instance_id, arrays):
        requests = self.messages.ArrayRequests(instance_id=instance_id, arrays=arrays)
        client.call("queue_requests", self.messages.QueueRequests(requests=requests))

    def allocate(self, client, instance_id, arrays):
        response, fds = client.allocate(instance_id, arrays)
        for fd in fds.values():
            os.close(fd)
        return response, list(fds)

    def shared_pair(self):
        """Two clients in one shared group, each holding an array, about to replace it."""
        pair = []
        for name in ("first", "second"):
            client = self.connect(name)
            number = client.register(name, group="g", shared=True).instance_id
            self.allocate(client, number, [self.array("x", [2 * MIB])])
            pair.append((client, number))
        for client, number in pair:
            self.queue(client, number, [self.array("x", [8 * MIB])])
        return pair

    def restart_daemon(self):
        """One that has cached nothing."""
        self.assertEqual(type(self).daemon.stop(), 0, self.daemon.log())
        self.start_daemon()

    def under_way(self):
        self.status_when(lambda s: s["promised_bytes"] > 0, "the transaction is under way")

    def test_a_member_leaves_after_who_asked_has_died(self):
        for field in ("unregister_instance", "release"):
            with self.subTest(field):
                (asker, number), (member, other) = self.shared_pair()
                self.send_allocate(asker, number, [self.array("x", [8 * MIB])])
                self.under_way()
                asker.socket.close()
                self.status_when(lambda s: len(s["clients"]) == 1, "who asked is gone")
                if field == "release":
                    body = self.messages.Release(instance_id=other, all=True)
                else:
                    body = self.messages.UnregisterInstance(instance_id=other)
                member.call(field, body)  # after the transaction
                member.close()
                member.hello_fds.clear()
                self.check_nothing_is_left()

    def test_a_member_dies_and_then_who_asked(self):
        (asker, number), (member, _) = self.shared_pair()
        self.send_allocate(asker, number, [self.array("x", [8 * MIB])])
        self.under_way()
        member.socket.close()
        self.status_when(lambda s: len(s["clients"]) == 1, "the member is gone")
        asker.socket.close()

    def test_the_survivor_goes_on(self):
        (asker, number), (member, other) = self.shared_pair()
        self.send_allocate(asker, number, [self.array("x", [8 * MIB])])
        self.under_way()
        asker.socket.close()
        response, _ = self.allocate(member, other, [self.array("x", [4 * MIB])])
        self.assertEqual([a.nbytes for a in response.arrays], [4 * MIB])

    def test_a_holder_of_legacy_blocks_dies(self):
        """Nothing else drains beside them, so it is they that are watched."""
        client = self.connect("legacy", handle_kind=HANDLE_LEGACY)
        number = client.register("legacy").instance_id
        response, _ = self.allocate(client, number, [self.array("x", [4 * MIB])])
        self.assertEqual(len(response.blocks[0].legacy_handle), 64)
        client.socket.close()

    # ------------------------------------------------------------- debts

    def test_replaced_memory_that_never_comes_back_ends_the_session(self):
        """Also where the answer brought no descriptor, so that no Ack is awaited."""
        client = self.connect("debtor")
        number = client.register("debtor").instance_id
        self.allocate(client, number, [self.array("x", [2 * MIB]), self.array("y", [4 * MIB])])
        response, new = self.allocate(client, number, [self.array("x", [2 * MIB]),
                                                       self.array("y", [0])])
        self.assertEqual((len(response.dropped_blocks), len(new)), (1, 0))
        start = time.monotonic()
        self.assert_closed(client.socket)
        self.assertLess(time.monotonic() - start, 8)

    def test_a_yield_that_is_not_answered_ends_the_session(self):
        self.restart_daemon()
        client = self.connect("holder")
        number = client.register("holder").instance_id
        self.allocate(client, number, [self.array("x", [40 * MIB])])
        self.send_allocate(client, number,
                           [self.array("x", [30 * MIB]), self.array("y", [30 * MIB])])
        message, _ = client.receive()
        self.assertTrue(message.HasField("yield"))
        other = self.connect("bystander")
        mine = other.register("bystander").instance_id
        self.allocate(other, mine, [self.array("z", [2 * MIB])])  # delayed by nobody
        self.assert_closed(client.socket)
        self.status_when(lambda s: s["draining_bytes"] == 0, "its memory is free")
        self.allocate(other, mine, [self.array("z", [60 * MIB])])

    def test_a_yield_is_answered(self):
        self.restart_daemon()
        client = self.connect("holder")
        number = client.register("holder").instance_id
        _, old = self.allocate(client, number, [self.array("x", [40 * MIB])])
        self.send_allocate(client, number,
                           [self.array("x", [30 * MIB]), self.array("y", [30 * MIB])],
                           1001)
        event, _ = client.receive()
        yield_id = getattr(event, "yield").yield_id
        client.send("give_back", self.messages.GiveBack(segment_ids=old, yield_id=yield_id))
        message, fds = client.receive()
        for fd in fds:
            os.close(fd)
        self.assertEqual((message.id, message.result.code), (1001, OK))
        self.assertEqual([a.nbytes for a in message.response.arrays], [30 * MIB] * 2)

    def test_messages_without_end_behind_an_allocate(self):
        self.restart_daemon()
        client = self.connect("flood")
        number = client.register("flood").instance_id
        self.allocate(client, number, [self.array("x", [40 * MIB])])
        self.send_allocate(client, number,
                           [self.array("x", [30 * MIB]), self.array("y", [30 * MIB])])
        self.assertTrue(client.receive()[0].HasField("yield"))  # and never answered
        with contextlib.suppress(ConnectionError):
            for _ in range(5000):
                client.release(number, ["y"])
        self.assert_closed(client.socket)
        start = time.monotonic()
        self.status()
        self.assertLess(time.monotonic() - start, 0.1)
        self.assertIn("wait for an Allocate", self.daemon.log())

    # ------------------------------------------------------------- shut-down

    def test_shutting_down_in_the_middle(self):
        (asker, number), (member, _) = self.shared_pair()
        self.send_allocate(asker, number, [self.array("x", [8 * MIB])])
        self.under_way()
        self.send_allocate(member, 1, [])  # is parked
        self.restart_daemon()


if __name__ == "__main__":
    unittest.main()
