#!/usr/bin/python3
"""Write the hand-made inputs of fuzz_dispatch: conversations that get somewhere.

    tests/fuzz/seed_dispatch.py FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
OTHER, RUN = 0x8000, 0x4000


def main(folder):
    with tempfile.TemporaryDirectory() as generated:
        subprocess.run(["protoc", f"--python_out={generated}", f"-I{HERE.parent.parent / 'proto'}",
                        "cubiemem.proto"], check=True)
        sys.path.insert(0, generated)
        sys.dont_write_bytecode = True
        import cubiemem_pb2 as m

    def packet(flags, number=0, **body):
        data = m.ClientMessage(id=number, **body).SerializeToString()
        return (len(data) | flags).to_bytes(2, "little") + data

    def arrays(**sizes):
        return [m.ArrayRequest(label=label, dtype="uint8", shape=[size], chunk_axis_index=0)
                for label, size in sizes.items()]

    def requests(number, **sizes):
        return m.ArrayRequests(instance_id=number, arrays=arrays(**sizes))

    def hello(flags=0, **options):
        return packet(flags, 1, hello=m.Hello(major=1, name="fuzz", **options))

    def register(flags, name, **options):
        return packet(flags, 2, register_instance=m.RegisterInstance(name=name, **options))

    def allocate(flags, number, trigger=1, **sizes):
        return packet(flags, number, allocate=m.Allocate(
            instance_id=trigger, requests=[requests(trigger, **sizes)]))

    def part(number, place, more, **sizes):
        data = m.ClientMessage(id=number, part=place, more=more, allocate=m.Allocate(
            instance_id=1, requests=[requests(1, **sizes)])).SerializeToString()
        return len(data).to_bytes(2, "little") + data

    both = hello() + hello(OTHER) + register(0, "a", group="g", shared=True, evictable=True) \
        + register(OTHER, "b", group="g", shared=True)
    names = hello() + register(0, "a", proportion=0.5) + register(0, "b", owner="a")
    seeds = {
        "names": names
        + packet(0, 3, set_proportion=m.SetProportion(instance_id=1, proportion=0.25))
        + packet(0, 4, set_auto=m.SetAuto(instance_id=1))
        + packet(0, 5, change_group=m.ChangeGroup(instance_id=2, group="h", shared=True))
        + packet(0, 6, available=m.Available(instance_id=1))
        + packet(0, 7, control_pages=m.ControlPages()) + packet(0, 8, status=m.Status())
        + packet(RUN, 9, set_mode=m.SetMode(mode="passive"))
        + packet(0, 10, set_mode=m.SetMode(mode="active"))
        + packet(0, 11, set_limit=m.SetLimit(uid=0, size=MIB))
        + packet(0, 12, set_limit=m.SetLimit(uid=0, none=True))
        + packet(0, 13, unregister_instance=m.UnregisterInstance(instance_id=1)),
        "memory": names + allocate(0, 3, x=4 * MIB, y=100) + allocate(RUN, 4, x=8 * MIB)
        + packet(RUN, 5, release=m.Release(instance_id=1, labels=["x"]))
        + packet(0, 0, give_back=m.GiveBack(segment_ids=[1, 2])),
        "replaced": names + allocate(0, 3, x=4 * MIB, y=100)
        + packet(RUN, 5, release=m.Release(instance_id=1, all=True))
        + allocate(0, 6, x=4 * MIB, y=100) + allocate(RUN, 7, x=4 * MIB, y=100)
        + packet(0, 0, ack=m.Ack(packet=4)),
        "shared": both + packet(0, 3, queue_requests=m.QueueRequests(
            requests=requests(1, x=4 * MIB)))
        + packet(OTHER, 3, queue_requests=m.QueueRequests(requests=requests(1, x=6 * MIB)))
        + allocate(OTHER | RUN, 4, y=2 * MIB)
        + packet(RUN, 5, release=m.Release(instance_id=1, all=True)),
        "parked": both + allocate(0, 3, x=4 * MIB) + allocate(OTHER, 4, x=2 * MIB)
        + packet(OTHER, 5, release=m.Release(instance_id=1, all=True))
        + packet(OTHER, 6, unregister_instance=m.UnregisterInstance(instance_id=1))
        + packet(0, 7, ping=m.Ping()),
        "evict": hello() + hello(OTHER) + register(0, "a", evictable=True)
        + register(OTHER, "b") + allocate(0, 3, x=20 * MIB) + allocate(OTHER | RUN, 4, x=50 * MIB)
        + packet(RUN, 0, evict_reply=m.EvictReply(evict_id=1, busy=True)),
        "parts": names + part(3, 0, True, x=5) + part(3, 1, False, y=6),
        "refused": hello(device_uuid="GPU-0") + hello(OTHER, handle_kind=2)
        + packet(0, 2, ping=m.Ping()),
    }
    folder = pathlib.Path(folder)
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
