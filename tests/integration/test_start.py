#!/usr/bin/python3
"""Several daemons, several devices, and what lies on the way when one starts."""
import contextlib
import json
import os
import socket
import subprocess
import unittest

from daemon_case import HERE, MIB, STAGE, Daemon, DaemonCase, RawClient, wait_until

DATA = HERE.parent / "data" / "theoph.csv"


class StartTest(DaemonCase):
    """The class's own daemon is one that is alive."""

    def start(self, path, device="sim:8MiB,another"):
        return subprocess.run([STAGE / "cubiememd", "--device", device, "--socket", path],
                              capture_output=True, text=True, timeout=30, check=False)

    def fresh(self, name, **options):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        return Daemon(folder, "sim:8MiB,another", **options)

    def test_case_31_a_dead_socket_is_replaced(self):
        daemon = self.fresh("dead")
        daemon.process.kill()
        daemon.process.wait()
        self.assertTrue(os.path.exists(daemon.path))
        daemon = self.fresh("dead")
        with contextlib.closing(RawClient(self.messages, daemon.path, "test")) as client:
            client.call("ping", self.messages.Ping())
        self.assertEqual(daemon.stop(), 0)
        self.assertFalse(os.path.exists(daemon.path))

    def test_case_31_a_live_daemon_is_left_alone(self):
        client = self.connect()
        for device in (self.device, "sim:8MiB,another"):
            done = self.start(self.daemon.path, device)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)
            self.assertIn(self.daemon.path if "another" in device else "", done.stderr)
        client.call("ping", self.messages.Ping())
        self.connect().call("ping", self.messages.Ping())

    def test_case_31_what_is_no_daemons_socket_is_left_alone(self):
        folder = os.path.join(self.folder, "foreign")
        os.mkdir(folder)
        path = os.path.join(folder, "daemon.sock")
        with open(path, "w", encoding="ascii") as file:
            file.write("precious")
        self.assertEqual(self.start(path).returncode, 7)
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")
        os.unlink(path)
        os.symlink("/etc/hostname", path)
        self.assertEqual(self.start(path).returncode, 7)
        self.assertTrue(os.path.islink(path))
        os.unlink(path)
        os.mkdir(path)
        self.assertEqual(self.start(path).returncode, 7)
        self.assertTrue(os.path.isdir(path))
        os.rmdir(path)
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as foreign:
            foreign.bind(path)
            foreign.listen()
            self.assertEqual(self.start(path).returncode, 7)
            self.assertTrue(os.path.exists(path))

    def test_case_21_quotas_that_add_up_to_the_whole_can_be_had(self):
        """The daemon's own use comes out of nobody's quota."""
        clients = [self.connect(f"half {i}") for i in range(2)]
        for client in clients:
            number = client.register("solver", proportion=0.5).instance_id
            _, fds = client.allocate(number, [self.array("x", [32 * MIB], unchunkable=True)])
            for fd in fds.values():
                os.close(fd)
        self.assertEqual(self.status()["free_bytes"], 0)

    def test_case_21_a_budget_beyond_the_reserve_is_warned_of(self):
        folder = os.path.join(self.folder, "reserve")
        os.mkdir(folder)
        daemon = Daemon(folder, "sim:64MiB,reserve", "--budget", "100%", "--reserve", "8MiB")
        self.assertEqual(daemon.stop(), 0)
        line = next(line for line in daemon.log().splitlines() if "reserve" in line)
        self.assertIn("a budget of 64 MiB and a reserve of 8 MiB", line)
        daemon = Daemon(folder, "sim:64MiB,reserve", "--reserve", "8MiB")
        self.assertNotIn("a reserve", daemon.log())
        with contextlib.closing(RawClient(self.messages, daemon.path, "test")) as client:
            self.assertEqual(client.hello.hello.budget, 56 * MIB)
        self.assertEqual(daemon.stop(), 0)

    def test_case_41_the_dead_leave_no_lines(self):
        before = len(json.dumps(self.status()))
        for i in range(1000):
            client = RawClient(self.messages, self.daemon.path, f"short {i}")
            if i % 10 == 0:
                client.register("solver", group=f"g{i}", shared=i % 20 == 0)
            client.close()
        status = self.status_when(lambda s: not s["clients"])
        self.assertEqual((status["groups"], status["limits"]), ([], []))
        self.assertLess(len(json.dumps(status)), before + 32)


class TwoDevicesTest(unittest.TestCase):
    """Two simulated GPUs of one run directory, a daemon each."""

    def setUp(self):
        DaemonCase.setUpClass.__func__(DevicesCase)
        self.addCleanup(DevicesCase.tearDownClass)
        self.case = DevicesCase()
        self.folder = DevicesCase.folder
        self.daemons = [DevicesCase.daemon]
        self.second = self.start_second()
        self.addCleanup(self.second.kill)

    def start_second(self):
        path = os.path.join(self.folder, "second.sock")
        log = os.path.join(self.folder, "second.log")
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [STAGE / "cubiememd", "--device", "sim:64MiB,sim1", "--socket", path,
                 "--log-level", "debug"], stderr=output)
        self.second_path, self.second_log = path, log
        wait_until(lambda: "serves" in self.read(log), "the second daemon serves")
        return process

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def uuid(self, path):
        done = subprocess.run([STAGE / "cubiememctl", "-s", path, "status", "--json"],
                              capture_output=True, text=True, timeout=30, check=True)
        return json.loads(done.stdout)["device"]["uuid"]

    def fit(self, path, visible):
        return subprocess.run(
            [STAGE / "pkfit", "--data", DATA, "--subjects", "3", "--points", "20", "--quiet",
             "--socket", path], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible})

    def granted(self):
        return ["granted" in DevicesCase.daemon.log(), "granted" in self.read(self.second_log)]

    def test_case_18_visible_devices_in_another_order(self):
        """Charged to the GPU whose daemon was asked, whatever its number is today."""
        first, second = self.uuid(DevicesCase.daemon.path), self.uuid(self.second_path)
        self.assertNotEqual(first, second)
        done = self.fit(self.second_path, f"{second},{first}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.granted(), [False, True])
        done = self.fit(DevicesCase.daemon.path, f"{second},{first}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.granted(), [True, True])
        done = self.fit(self.second_path, first)  # hidden from it
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(second, done.stderr)

    def test_case_08_another_gpu_than_the_daemons(self):
        """Of a program that sees one GPU and asks for the memory of the other."""
        first, second = self.uuid(DevicesCase.daemon.path), self.uuid(self.second_path)
        for path, wanted, seen in ((DevicesCase.daemon.path, first, second),
                                   (self.second_path, second, first)):
            done = self.fit(path, seen)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(wanted, done.stderr)
            self.assertIn(seen, done.stderr)

    def test_case_43_json_with_no_one_and_two_gpus(self):
        folder = os.path.join(self.folder, "run")
        os.mkdir(folder)
        second = os.path.join(folder, f"{self.uuid(self.second_path)}.sock")
        first = os.path.join(folder, f"{self.uuid(DevicesCase.daemon.path)}.sock")
        environment = {**os.environ, "CUBIEMEM_RUNDIR": folder}
        environment.pop("CUBIEMEM_SOCKET", None)

        def status(*options):
            return subprocess.run([STAGE / "cubiememctl", *options, "status", "--json"],
                                  capture_output=True, text=True, timeout=30, check=False,
                                  env=environment)

        done = status()
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        os.symlink(self.second_path, second)
        done = status()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["clients"], [])
        os.symlink(DevicesCase.daemon.path, first)
        done = status()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(first, done.stderr)
        self.assertIn(second, done.stderr)
        for path in (first, second):
            uuid = os.path.basename(path)[:-5]
            done = status("-g", uuid)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["device"]["uuid"], uuid)
            self.assertNotIn("\x1b", done.stdout)
            self.assertTrue(done.stdout.isascii())


class DevicesCase(DaemonCase):
    """Carries the first daemon of TwoDevicesTest; has no tests of its own."""

    device = "sim:64MiB,sim0"
    options = ("--log-level", "debug")


if __name__ == "__main__":
    unittest.main()
