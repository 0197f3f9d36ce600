#!/usr/bin/python3
"""Bad input, and what it gets: every byte of a client may be a lie.

After each test another client is served, the books balance and the daemon has
neither more descriptors nor noticeably more memory than before.
"""
import array
import contextlib
import math
import mmap
import os
import random
import select
import socket
import time
import unittest

from daemon_case import (
    ALREADY_REGISTERED, BAD_PROPORTION, BUSY, DEVICE_MISMATCH, INVALID_REQUEST, LIMIT, MIB,
    NOT_REGISTERED, TOO_LARGE, VERSION_MISMATCH, DaemonCase, RawClient, Refused, wait_until,
)


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class HostileTest(DaemonCase):
    def setUp(self):
        status = self.status()  # whatever is allocated once is there
        self.fds_before = self.daemon.fds() - status["cached_segments"]
        self.rss_before = self.daemon.rss()
        self.addCleanup(self.check_nothing_is_left)  # runs last

    def check_nothing_is_left(self):
        status = self.status_when(
            lambda s: not s["clients"] and s["lent_bytes"] == s["draining_bytes"] == 0
            and s["promised_bytes"] == 0, "nobody holds anything")
        self.assertEqual(status["others_bytes"], 0)
        wait_until(lambda: self.daemon.fds() - self.status()["cached_segments"]
                   <= self.fds_before + 1,  # the connection that asks
                   f"{self.fds_before} descriptors again")
        if not {"ASAN_OPTIONS", "TSAN_OPTIONS"} & set(os.environ):  # their own memory grows
            self.assertLess(self.daemon.rss(), self.rss_before + 8 * MIB)

    # ------------------------------------------------------------ framing

    def test_case_33_garbage_closes_the_connection(self):
        chance = random.Random(33)
        for _ in range(200):
            sock = self.stranger()
            sock.send(chance.randbytes(chance.randint(1, 3000)))
            self.assert_closed(sock)
            sock.close()

    def test_an_empty_packet_is_an_end(self):
        sock = self.stranger()
        sock.send(b"")
        self.assert_closed(sock)

    def test_a_packet_over_the_limit(self):
        client = self.connect()
        client.socket.send(b"\n" * 65537)
        self.assert_closed(client.socket)

    def test_case_33_lengths_inside_that_claim_gigabytes(self):
        for tag in (10, 17, 18, 4000):
            client = self.connect()
            body = varint(tag << 3 | 2) + varint(0xFFFFFFFF) + b"xxxx"
            client.socket.send(b"\x08\x05" + body)
            self.assert_closed(client.socket)

    def test_many_tiny_messages_inside_one(self):
        """64 KiB of empty submessages decode to far more memory, within bounds."""
        client = self.connect()
        inner = b"\x12\x00" * 30000  # Allocate.requests, empty
        client.socket.send(b"\x08\x05" + varint(17 << 3 | 2) + varint(len(inner)) + inner)
        with contextlib.suppress(ConnectionError, Refused):
            client.receive()

    def test_first_messages_other_than_hello(self):
        message = self.messages.ClientMessage(id=1)
        message.ping.SetInParent()
        sock = self.stranger()
        sock.send(message.SerializeToString())
        self.assert_closed(sock)

    def test_hello_twice_no_body_two_bodies_unknown_body(self):
        client = self.connect()
        self.assertEqual(self.refused(client.call, "hello", self.messages.Hello(major=1)).code,
                         INVALID_REQUEST)
        for raw in (b"\x08\x63", b"\x08\x63" + varint(4711 << 3 | 2) + b"\x00"):
            client.socket.send(raw)
            self.assertEqual(client.receive()[0].result.code, INVALID_REQUEST)
        message = self.messages.ClientMessage(id=100)
        message.ping.SetInParent()
        message.status.SetInParent()
        client.socket.send(message.SerializeToString())
        self.assertEqual(client.receive()[0].result.code, INVALID_REQUEST)
        client.call("ping", self.messages.Ping())

    def test_parts_out_of_order_or_without_end(self):
        client = self.connect()
        message = self.messages.ClientMessage(id=9, part=1, more=True)
        message.allocate.instance_id = 1
        client.socket.send(message.SerializeToString())
        self.assert_closed(client.socket)
        client = self.connect()
        message.ClearField("part")
        message.allocate.requests.add().arrays.add(label="x" * 60000)
        with contextlib.suppress(ConnectionError):
            for part in range(200):
                message.part = part
                client.socket.send(message.SerializeToString())
        self.assert_closed(client.socket)

    def test_descriptors_that_nobody_asked_for(self):
        client = self.connect()
        message = self.messages.ClientMessage(id=7)
        message.ping.SetInParent()
        for _ in range(50):
            rights = array.array("i", [0] * 60)
            client.socket.sendmsg([message.SerializeToString()],
                                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self.assertEqual(client.receive()[0].result.code, 0)

    def test_unknown_fields_are_ignored(self):
        client = self.connect()
        client.socket.send(b"\x08\x09" + varint(23 << 3 | 2) + b"\x05" + b"\xf2\x7d\x02hi"
                           + varint(2000 << 3) + b"\x01")
        self.assertEqual(client.receive()[0].result.code, 0)

    # -------------------------------------------------------------- hello

    def test_another_major_version_is_told_which_side_to_upgrade(self):
        for major, side in ((0, "client"), (2, "daemon")):
            with self.assertRaises(Refused) as refused:
                RawClient(self.messages, self.daemon.path, "old", major=major)
            self.assertEqual(refused.exception.result.code, VERSION_MISMATCH)
            self.assertIn(f"upgrade the {side}", refused.exception.result.text)

    def test_another_device(self):
        with self.assertRaises(Refused) as refused:
            RawClient(self.messages, self.daemon.path, "lost", device_uuid="GPU-0")
        self.assertEqual(refused.exception.result.code, DEVICE_MISMATCH)
        self.assertIn("GPU-0", refused.exception.result.text)

    def test_bad_names(self):
        for name in ("n" * 256, "n" * 60000):
            with self.assertRaises(Refused) as refused:
                RawClient(self.messages, self.daemon.path, name)
            self.assertEqual(refused.exception.result.code, INVALID_REQUEST)

    def test_nasty_names_are_shown_and_harm_nothing(self):
        client = self.connect('"\\\n\x1b[31m%s%n\u202e')
        client.register('in"st\\ance\n\x07%n')
        names = [c["name"] for c in self.status()["clients"]]
        self.assertEqual(names, ['"\\\n\x1b[31m%s%n\u202e'])
        # Not UTF-8: by hand, since Python's protobuf would refuse it.
        sock = self.stranger()
        hello = b"\x08\x01" + b"\x22\x03\xff\xfe\x80"
        sock.send(b"\x08\x01" + varint(10 << 3 | 2) + varint(len(hello)) + hello)
        sock.recv(65536)
        self.assertEqual(len(self.status()["clients"]), 2)

    # ---------------------------------------------------------- instances

    def test_bad_registrations(self):
        client = self.connect()
        client.register("taken", proportion=0.1)
        for options, code in (
            ({"name": "taken"}, ALREADY_REGISTERED), ({"name": ""}, INVALID_REQUEST),
            ({"name": "n" * 256}, INVALID_REQUEST), ({"name": "a", "group": ""}, INVALID_REQUEST),
            ({"name": "a", "owner": "o" * 256}, INVALID_REQUEST),
            ({"name": "a", "proportion": math.nan}, BAD_PROPORTION),
            ({"name": "a", "proportion": math.inf}, BAD_PROPORTION),
            ({"name": "a", "proportion": -math.inf}, BAD_PROPORTION),
            ({"name": "a", "proportion": -0.1}, BAD_PROPORTION),
            ({"name": "a", "proportion": 1.0000001}, BAD_PROPORTION),
        ):
            with self.subTest(options):
                request = self.messages.RegisterInstance(**options)
                self.assertEqual(self.refused(client.call, "register_instance", request).code, code)
        mine = self.status()["clients"][0]
        self.assertEqual([i["name"] for i in mine["instances"]], ["taken"])
        for proportion in (math.nan, math.inf, -1.0, 2.0):
            request = self.messages.SetProportion(instance_id=1, proportion=proportion)
            self.assertEqual(self.refused(client.call, "set_proportion", request).code,
                             BAD_PROPORTION)

    def test_strangers_instances(self):
        owner, thief = self.connect("owner"), self.connect("thief")
        number = owner.register("mine").instance_id
        for field, body in (
            ("unregister_instance", self.messages.UnregisterInstance(instance_id=number)),
            ("allocate", self.messages.Allocate(instance_id=number)),
            ("release", self.messages.Release(instance_id=number)),
            ("set_auto", self.messages.SetAuto(instance_id=number)),
            ("change_group", self.messages.ChangeGroup(instance_id=number, group="g")),
            ("available", self.messages.Available(instance_id=number)),
        ):
            with self.subTest(field):
                self.assertEqual(self.refused(thief.call, field, body).code, NOT_REGISTERED)

    def test_giving_back_what_is_not_owed_ends_the_session(self):
        client = self.connect()
        client.send("give_back", self.messages.GiveBack(segment_ids=[1, 2, 3]))
        self.assert_closed(client.socket)

    def test_acks_of_nothing_end_the_session(self):
        client = self.connect()
        client.send("ack", self.messages.Ack(packet=4711))
        self.assert_closed(client.socket)

    # ------------------------------------------------------------- arrays

    def test_case_25_26_sizes_that_overflow(self):
        client = self.connect()
        number = client.register("big").instance_id
        for array_ in (
            self.array("x", [2, 13, 419, 691, 823, 2977518503]),
            self.array("x", [2**61 - 1], dtype="float64"),
            self.array("x", [2**63 - 1, 2**63 - 1]),
            self.array("x", [2**62, 4, 4]),
            *(self.array("x", [2**32, 2**32 - d]) for d in (0, 1, 511)),
        ):
            with self.subTest(list(array_.shape)):
                self.assertEqual(self.refused(client.allocate, number, [array_]).code, TOO_LARGE)

    def test_malformed_arrays(self):
        client = self.connect()
        number = client.register("odd").instance_id
        good = self.array("x", [4])
        for arrays in (
            [self.array("", [1])], [self.array("l" * 256, [1])], [good, good],
            [self.array("x", [1] * 33)], [self.array("x", [-1])],
            [self.array("x", [1], dtype="float65")], [self.array("x", [1], dtype="")],
            [self.array("x", [1], total_runs=0)], [self.array("x", [1], total_runs=-5)],
            [self.array("x", [1], chunk_axis_index=-1)],
            [self.array("x", [1], memory=0)],
            [self.array("x", [4], chunk_axis_index=0), self.array("y", [5], chunk_axis_index=0)],
        ):
            with self.subTest(str(arrays)[:80]):
                self.assertEqual(self.refused(client.allocate, number, arrays).code,
                                 INVALID_REQUEST)
        self.assertEqual(self.status()["clients"][0]["arrays"], 0)
        response, fds = client.allocate(number, [good])
        for fd in fds.values():
            os.close(fd)
        self.assertEqual(len(response.arrays), 1)

    def test_too_many_arrays(self):
        client = self.connect()
        number = client.register("many").instance_id
        arrays = [self.array(f"a{i}", [1]) for i in range(4097)]
        self.assertEqual(self.refused(self.allocate_in_parts, client, number, arrays).code, LIMIT)

    def allocate_in_parts(self, client, number, arrays, each=500):
        client.last_id += 1
        pieces = [arrays[i:i + each] for i in range(0, len(arrays), each)]
        for part, piece in enumerate(pieces):
            message = self.messages.ClientMessage(id=client.last_id, part=part,
                                                  more=part < len(pieces) - 1)
            message.allocate.instance_id = number
            message.allocate.requests.add(instance_id=number, arrays=piece)
            client.socket.send(message.SerializeToString())
        message, fds = client.receive()
        for fd in fds:
            os.close(fd)
        if message.result.code != 0:
            raise Refused(message.result)
        return message.response

    def test_the_most_arrays_come_in_parts(self):
        client = self.connect()
        number = client.register("many").instance_id
        arrays = [self.array(f"array-{i}-{'x' * 100}", [7]) for i in range(4096)]
        response = self.allocate_in_parts(client, number, arrays, 400)
        self.assertEqual(len(response.arrays), 4096)
        self.assertEqual({a.block_id for a in response.arrays} - {response.blocks[0].block_id},
                         set())

    def test_empty_arrays_are_fine(self):
        client = self.connect()
        number = client.register("empty").instance_id
        response, fds = client.allocate(
            number, [self.array("x", [0, 2**40], dtype="float64"), self.array("y", [0])])
        self.assertEqual((len(response.blocks), len(fds)), (0, 0))
        self.assertEqual([a.nbytes for a in response.arrays], [0, 0])

    def test_releases_of_what_is_not_held(self):
        client = self.connect()
        number = client.register("none").instance_id
        client.call("release", self.messages.Release(instance_id=number, labels=["x", "", "y"]))
        client.call("release", self.messages.Release(instance_id=number, all=True))

    def test_allocating_while_owing(self):
        client = self.connect()
        number = client.register("debtor").instance_id
        _, fds = client.allocate(number, [self.array("x", [4 * MIB])])
        response, more = client.allocate(number, [self.array("x", [2 * MIB])])
        for fd in (*fds.values(), *more.values()):
            os.close(fd)
        self.assertEqual(len(response.dropped_blocks), 1)
        self.assertEqual(self.refused(client.allocate, number, []).code, BUSY)
        client.send("give_back", self.messages.GiveBack(segment_ids=list(fds)))
        client.allocate(number, [])

    # -------------------------------------------------------------- floods

    def test_case_32_neither_the_silent_nor_the_deaf_delay_anybody(self):
        half = self.connect("half a conversation")
        deaf = self.connect("deaf")
        message = self.messages.ClientMessage(id=1)
        message.status.SetInParent()
        deaf.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for number in range(1, 20000):
                message.id = number
                deaf.socket.send(message.SerializeToString())
        best = min(self.timed_status() for _ in range(3))
        self.assertLess(best, 0.1)
        half.call("ping", self.messages.Ping())

    def timed_status(self):
        start = time.monotonic()
        self.status()
        return time.monotonic() - start

    def test_more_requests_than_may_wait(self):
        """Answers that are not read are bounded, too."""
        client = self.connect()
        message = self.messages.ClientMessage()
        message.ping.SetInParent()
        for number in range(1, 200):
            message.id = number
            client.socket.send(message.SerializeToString())
        codes = {client.receive()[0].result.code for _ in range(1, 200)}
        self.assertEqual(codes, {0})

    def test_thousands_of_connections_come_and_go(self):
        for _ in range(1000):
            self.stranger().close()
        for number in range(200):
            RawClient(self.messages, self.daemon.path, f"short {number}").close()

    def test_thousands_of_groups_do_not_delay_the_status(self):
        client = self.connect("groups")
        self.rss_before += 16 * MIB  # a document of 2 MiB leaves holes in the heap
        for number in range(3000):
            client.register(f"i{number}", group=f"g{number}", owner="all")
        before = self.daemon.cpu_seconds()
        for _ in range(5):
            self.status()
        self.assertLess(self.daemon.cpu_seconds() - before, 5 if os.environ.get("SAN") else 0.5)

    def test_requests_that_want_no_answer_get_none(self):
        client = self.connect()
        number = client.register("silent").instance_id
        for field, body in (("status", self.messages.Status()),
                            ("control_pages", self.messages.ControlPages()),
                            ("available", self.messages.Available(instance_id=number)),
                            ("set_auto", self.messages.SetAuto(instance_id=number)),
                            ("ping", self.messages.Ping())):
            client.send(field, body)
        client.call("ping", self.messages.Ping())
        self.assertEqual(client.events, [])

    def test_an_allocate_commits_its_own_group_only(self):
        client = self.connect()
        one = client.register("one", group="g").instance_id
        two = client.register("two", group="h").instance_id
        body = self.messages.Allocate(instance_id=one)
        for number in (one, two):
            body.requests.add(instance_id=number, arrays=[self.array("x", [5])])
        self.assertEqual(self.refused(client.call, "allocate", body).code, INVALID_REQUEST)
        self.assertEqual([m["queued"] for g in self.status()["groups"] for m in g["members"]],
                         [False, False])

    def test_a_forked_child_that_speaks(self):
        client = self.connect("parent")
        child = os.fork()
        if child == 0:
            client.send("ping", self.messages.Ping(), 1)
            os._exit(0)
        os.waitpid(child, 0)
        self.assert_closed(client.socket)


class PagesTest(DaemonCase):
    """Nonsense in a client's control page: its own place in the order is all that it moves."""

    options = ("--mode", "passive", "--evict-timeout", "0.3")

    def take(self, client, instance, size):
        _, fds = client.allocate(instance.instance_id,
                                 [self.array("x", [size], unchunkable=True)])
        for fd in fds.values():
            os.close(fd)

    def answer_until(self, asker, number, victims):
        """Wait for the asker's grant; victims answer what they are asked: {client: busy}."""
        while number not in asker.answers:
            ready, _, _ = select.select([asker.socket, *(v.socket for v in victims)], [], [], 10)
            self.assertTrue(ready, "nobody hears anything")
            for client in (asker, *victims):
                if client.socket not in ready:
                    continue
                message, fds = client.receive()
                for fd in fds:
                    os.close(fd)
                if client is asker:
                    asker.answers[message.id] = (message, [])
                elif message.HasField("invalidate"):
                    client.send("evict_reply", self.messages.EvictReply(
                        evict_id=message.invalidate.evict_id, busy=victims[client]))
        asker.finish(number)

    def test_nonsense_in_a_page_harms_its_writer_alone(self):
        liar, honest, asker = (self.connect(name) for name in ("liar", "honest", "asker"))
        instances = {c: c.register("i", evictable=c is not asker) for c in (liar, honest, asker)}
        size = liar.hello.hello.control_page_size
        chance = random.Random(4)
        patterns = [bytes(size), b"\xff" * size, b"\x01" * size, b"\x7f" * size,
                    *(chance.randbytes(size) for _ in range(12))]
        self.take(liar, instances[liar], 18 * MIB)
        for pattern in patterns:
            self.take(honest, instances[honest], 18 * MIB)
            self.use_grants(honest, instances[honest])
            with mmap.mmap(liar.hello_fds[0], size) as page:
                page[:] = pattern
            number = asker.start("allocate", self.messages.Allocate(
                instance_id=instances[asker].instance_id,
                requests=[self.messages.ArrayRequests(
                    instance_id=instances[asker].instance_id,
                    arrays=[self.array("x", [40 * MIB], unchunkable=True)])]))
            self.answer_until(asker, number, {liar: True, honest: False})
            held = {c["name"]: c["held_bytes"] for c in self.status()["clients"]}
            self.assertEqual((held["liar"], held["honest"], held["asker"]),
                             (18 * MIB, 0, 40 * MIB))
            asker.release(instances[asker].instance_id)
            for client in (liar, honest, asker):
                client.call("ping", self.messages.Ping())
        liar.release(instances[liar].instance_id)
        status = self.status_when(lambda s: s["lent_bytes"] == 0, "all has come back")
        self.assertEqual((status["draining_bytes"], status["promised_bytes"]), (0, 0))


if __name__ == "__main__":
    unittest.main()
