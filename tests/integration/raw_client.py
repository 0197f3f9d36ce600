"""A client of cubiememd in a few dozen lines, without the library.

Shows that proto/cubiemem.proto is enough to write one in another language: a
SOCK_SEQPACKET socket, one protobuf message a packet, descriptors beside it. The
messages' classes come from protoc --python_out and are handed in.
"""
import array
import os
import socket

PACKET_MAX_SIZE = 65536
PACKET_MAX_FDS = 64
KEEP_CLOEXEC = socket.MSG_CMSG_CLOEXEC


class Refused(Exception):
    """The daemon's Result was not OK."""

    def __init__(self, result):
        super().__init__(f"{result.code}: {result.text}")
        self.result = result


class RawClient:
    def __init__(self, messages, path, name, timeout=10, **hello_fields):
        self.messages = messages
        self.events = []
        self.answers = {}
        self.last_id = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)  # waits while the backlog is full
        self.socket.settimeout(timeout)
        hello_fields.setdefault("major", 1)
        hello = messages.Hello(name=name, **hello_fields)
        self.hello_fds = []
        try:
            self.hello, self.hello_fds = self.call("hello", hello)
        except Exception:
            self.socket.close()
            raise

    def close(self):
        for fd in self.hello_fds:
            os.close(fd)
        self.hello_fds = []
        self.socket.close()

    def send(self, field, body, number=0):
        """One request; number 0 asks for no answer."""
        message = self.messages.ClientMessage(id=number)
        getattr(message, field).CopyFrom(body)
        self.socket.send(message.SerializeToString())

    def call(self, field, body):
        """Send a request and wait for its answer: (DaemonMessage, descriptors)."""
        return self.finish(self.start(field, body))

    def start(self, field, body):
        """Send a request; its number, for finish()."""
        self.last_id += 1
        self.send(field, body, self.last_id)
        return self.last_id

    def finish(self, number):
        """Wait for the answer to a request. What else comes is kept: answers for their
        own finish(), events in self.events."""
        while number not in self.answers:
            message, fds = self.receive()
            if message.id == 0:
                self.events.append((message, fds))
            else:
                self.answers[message.id] = (message, fds)
        message, fds = self.answers.pop(number)
        if message.result.code != 0:
            raise Refused(message.result)
        return message, fds

    def receive(self):
        """The next message, its parts joined, and the descriptors of all parts."""
        message = self.messages.DaemonMessage()
        fds = []
        while True:
            data, more_fds = self.receive_packet()
            part = self.messages.DaemonMessage.FromString(data)
            message.MergeFrom(part)
            fds += more_fds
            if more_fds:
                self.send("ack", self.messages.Ack(packet=part.packet))
            if not part.more:
                return message, fds

    def receive_packet(self):
        space = socket.CMSG_SPACE(PACKET_MAX_FDS * array.array("i").itemsize)
        data, controls, flags, _ = self.socket.recvmsg(PACKET_MAX_SIZE, space, KEEP_CLOEXEC)
        fds = array.array("i")
        for level, kind, content in controls:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if not data:
            raise ConnectionError("the daemon closed the connection")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ConnectionError("a packet came cut off")
        return data, list(fds)

    def register(self, name, **options):
        request = self.messages.RegisterInstance(name=name, **options)
        return self.call("register_instance", request)[0].instance

    def allocate(self, instance_id, arrays):
        """Commit a batch: (ArrayResponse, {segment id: descriptor})."""
        requests = self.messages.ArrayRequests(instance_id=instance_id, arrays=arrays)
        request = self.messages.Allocate(instance_id=instance_id, requests=[requests])
        message, fds = self.call("allocate", request)
        new = [s for b in message.response.blocks for s in b.segments if not s.held]
        if len(new) != len(fds):
            raise ConnectionError(f"{len(new)} new segments came with {len(fds)} descriptors")
        return message.response, {s.segment_id: fd for s, fd in zip(new, fds)}

    def release(self, instance_id, labels=()):
        """Give arrays back; the caller has unmapped them. Needs no answer."""
        request = self.messages.Release(instance_id=instance_id, labels=labels, all=not labels)
        self.send("release", request)
