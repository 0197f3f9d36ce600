#!/usr/bin/python3
"""The protocol as another language sees it: a Python client against the daemon.

Two arrays are asked for by hand-made packets, the simulated device's memory is
written through the descriptors that come, and it all goes back. Skipped where
python3-protobuf is absent.
"""
import contextlib
import mmap
import os
import unittest

from daemon_case import INVALID_REQUEST, NOT_REGISTERED, DaemonCase, RawClient, Refused


class RawClientTest(DaemonCase):
    device = "sim:64MiB,raw"

    def arrays(self, runs):
        make = self.messages.ArrayRequest
        return [
            make(label="curve", dtype="float64", shape=[3, 1, runs], total_runs=runs),
            make(label="ss", dtype="float64", shape=[runs], chunk_axis_index=0, total_runs=runs),
        ]

    def test_hello_tells_the_device(self):
        client = self.connect()
        hello = client.hello.hello
        self.assertEqual(hello.major, 1)
        self.assertTrue(hello.simulated)
        self.assertEqual(hello.granularity, 2 << 20)
        self.assertEqual(hello.alignment, 512)
        self.assertEqual(hello.budget, 64 << 20)
        self.assertEqual(len(hello.token), 16)
        self.assertEqual(len(client.hello_fds), 1)
        with mmap.mmap(client.hello_fds[0], hello.control_page_size) as page:
            self.assertEqual(page[4:8], b"Cbmm")

    def test_arrays_come_and_go(self):
        client = self.connect()
        instance = client.register("solver", proportion=0.5)
        self.assertEqual(instance.cap, 32 << 20)
        response, fds = client.allocate(instance.instance_id, self.arrays(1000))
        self.assertEqual((response.runs, response.chunks), (1000, 1))
        self.assertEqual((response.chunk_length, response.tail_length), (1000, 1000))
        placed = {a.label: a for a in response.arrays}
        self.assertEqual(list(placed["curve"].shape), [3, 1, 1000])
        self.assertEqual(placed["curve"].nbytes, 24000)
        self.assertEqual(placed["ss"].nbytes, 8000)
        for a in placed.values():
            self.assertEqual(a.offset % 512, 0)
        for block in response.blocks:
            self.assertEqual(block.size, sum(s.size for s in block.segments))

        held = sum(block.size for block in response.blocks)
        status = self.status()
        self.assertEqual(status["lent_bytes"], held)
        mine = [c for c in status["clients"] if c["id"] == client.hello.hello.client_id]
        self.assertEqual([c["held_bytes"] for c in mine], [held])
        self.assertEqual(mine[0]["pid"], os.getpid())
        self.assertEqual(mine[0]["arrays"], 2)

        self.write_and_read(response, fds)
        client.release(instance.instance_id)
        self.status_when(lambda s: s["lent_bytes"] == 0)

    def write_and_read(self, response, fds):
        """Each array's bytes through the segment it lies in, without its neighbours'."""
        segments = {b.block_id: b.segments for b in response.blocks}
        maps = {i: mmap.mmap(fd, os.fstat(fd).st_size) for i, fd in fds.items()}
        for number, a in enumerate(response.arrays, 1):
            segment = segments[a.block_id][0]
            self.assertLessEqual(a.offset + a.nbytes, segment.size)
            maps[segment.segment_id][a.offset : a.offset + a.nbytes] = bytes([number]) * a.nbytes
        for number, a in enumerate(response.arrays, 1):
            segment = segments[a.block_id][0]
            content = maps[segment.segment_id][a.offset : a.offset + a.nbytes]
            self.assertEqual(content, bytes([number]) * a.nbytes)
        for i, fd in fds.items():
            maps[i].close()
            os.close(fd)

    def test_what_does_not_fit_is_cut(self):
        client = self.connect()
        instance = client.register("large", proportion=0.25)
        response, fds = client.allocate(instance.instance_id, self.arrays(1000000))
        for fd in fds.values():
            os.close(fd)
        self.assertGreaterEqual(response.chunks, 2)
        length, chunks = response.chunk_length, response.chunks
        self.assertEqual(length * (chunks - 1) + response.tail_length, 1000000)
        self.assertLessEqual(sum(b.size for b in response.blocks), instance.cap)

    def test_refusals_have_a_code_and_a_text(self):
        client = self.connect()
        instance = client.register("wrong")
        bad = self.messages.ArrayRequest(label="x", dtype="float65", shape=[1])
        for number, arrays, code in (
            (instance.instance_id, [bad], INVALID_REQUEST),
            (instance.instance_id + 12345, [], NOT_REGISTERED),
        ):
            with self.assertRaises(Refused) as refused:
                client.allocate(number, arrays)
            self.assertEqual(refused.exception.result.code, code)
            self.assertTrue(refused.exception.result.text)

    def test_the_first_message_is_hello(self):
        message = self.messages.ClientMessage(id=1)
        message.ping.SetInParent()
        stranger = self.stranger()
        stranger.send(message.SerializeToString())
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(stranger.recv(65536), b"")

    def test_the_dead_leave_nothing(self):
        client = RawClient(self.messages, self.daemon.path, "short-lived")
        instance = client.register("gone")
        _, fds = client.allocate(instance.instance_id, self.arrays(1000))
        for fd in fds.values():
            os.close(fd)
        client.close()
        self.status_when(
            lambda s: s["lent_bytes"] == 0
            and s["draining_bytes"] == 0
            and all(c["name"] != "short-lived" for c in s["clients"]),
        )


if __name__ == "__main__":
    unittest.main()
