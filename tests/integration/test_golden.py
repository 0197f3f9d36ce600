#!/usr/bin/python3
"""Packets of earlier versions are understood for ever.

tests/data/golden has one encoded packet of every message, with all of its
fields set, as it was on the day it came into the protocol: NAME.bin, and NAME.txt
for people. They are never written again. A message without one fails here;
`test_golden.py --write` adds what is missing. tests/unit/test_golden.c decodes
the same files in C.
"""
import pathlib
import sys
import tempfile
import unittest

from daemon_case import ROOT, messages_generate

GOLDEN = ROOT / "tests" / "data" / "golden"


def fill(message, depth=0):
    """Every field a value of its own, told by the field's number."""
    from google.protobuf.descriptor import FieldDescriptor as Field

    for field in message.DESCRIPTOR.fields:
        repeated = field.label == Field.LABEL_REPEATED
        if field.type == Field.TYPE_MESSAGE:
            if depth < 6:
                fill(getattr(message, field.name).add() if repeated
                     else getattr(message, field.name), depth + 1)
                if not repeated:
                    getattr(message, field.name).SetInParent()
            continue
        value = {
            Field.CPPTYPE_STRING: f"{field.name} \u00b5",
            Field.CPPTYPE_BOOL: True,
            Field.CPPTYPE_DOUBLE: field.number + 0.25,
            Field.CPPTYPE_ENUM: field.enum_type.values[-1].number if field.enum_type else 0,
        }.get(field.cpp_type, field.number * 1000 + 7)
        if field.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_INT64):
            value = -value
        if field.type == Field.TYPE_BYTES:
            value = bytes(range(16))
        if repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)


def packets(messages):
    """NAME and packet of every body of both envelopes."""
    for side, envelope in (("client", messages.ClientMessage), ("daemon", messages.DaemonMessage)):
        for field in envelope.DESCRIPTOR.fields:
            if field.message_type is None:
                continue
            packet = envelope(id=1234567890123, part=2, more=True)
            body = getattr(packet, field.name)
            body.SetInParent()
            fill(body)
            yield f"{side}-{field.name}", packet


class GoldenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="cubiemem-golden.")
        cls.messages = messages_generate(cls.scratch.name)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_every_message_has_a_packet(self):
        for name, _ in packets(self.messages):
            self.assertTrue((GOLDEN / f"{name}.bin").exists(), f"{name}: test_golden.py --write")

    def test_every_packet_says_what_it_said(self):
        from google.protobuf import text_format

        files = sorted(GOLDEN.glob("*.bin"))
        self.assertTrue(files)
        for path in files:
            with self.subTest(path.name):
                envelope = {"client": self.messages.ClientMessage,
                            "daemon": self.messages.DaemonMessage}[path.name.split("-")[0]]
                packet = envelope.FromString(path.read_bytes())
                said = text_format.Parse(path.with_suffix(".txt").read_text("utf-8"), envelope())
                self.assertEqual(packet, said)
                self.assertEqual(packet.SerializeToString(deterministic=True), path.read_bytes())


def write_missing():
    from google.protobuf import text_format

    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, packet in packets(messages_generate(folder)):
            path = pathlib.Path(GOLDEN / f"{name}.bin")
            if not path.exists():
                path.write_bytes(packet.SerializeToString(deterministic=True))
                path.with_suffix(".txt").write_text(
                    text_format.MessageToString(packet, as_utf8=True), "utf-8")
                print(path.name)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_missing()
    else:
        unittest.main()
