#!/usr/bin/python3
"""Steering a running daemon: mode, proportions, ceilings; what is said, and to whom.

Also what the policy promises over many processes: shared groups, auto shares, one
grant for two who ask at the same moment.
"""
import os
import unittest

from daemon_case import (
    MIB, NO_MEMORY, QUOTA_OVERCOMMITTED, RUN_TOO_LARGE, UNCHUNKABLE_TOO_LARGE, DaemonCase,
    RawClient, needs_root,
)


def close_all(fds):
    for fd in fds.values():
        os.close(fd)


class SteeringTest(DaemonCase):
    def solver(self, name="client", size=None, **options):
        """A client with one instance, which may hold an array."""
        client = self.connect(name)
        number = client.register("solver", **options).instance_id
        if size is not None:
            close_all(client.allocate(number, [self.array("x", [size])])[1])
        return client, number

    def limit(self, *arguments):
        answer = self.ctl_json("set-limit", *arguments)
        self.addCleanup(self.ctl, "set-limit", *arguments[:-1], "none")
        return answer

    def assert_hears_of(self, client, revision):
        """LimitsChanged of this revision comes; the test's time-out if not."""
        heard = 0
        while heard < revision:
            message, _ = client.events.pop(0) if client.events else client.receive()
            heard = message.limits_changed.revision
        self.assertEqual(heard, revision)

    # ---------------------------------------------------------- mode, quotas

    def test_set_mode(self):
        client, number = self.solver(proportion=0.25)
        big = [self.array("x", [32 * MIB], unchunkable=True)]
        result = self.refused(client.allocate, number, big)
        self.assertEqual((result.code, result.limited_by), (UNCHUNKABLE_TOO_LARGE, "cap"))
        answer = self.ctl_json("set-mode", "passive")
        self.addCleanup(self.ctl, "set-mode", "active")
        self.assertEqual((answer["applied"], answer["over"]), (True, []))
        self.assert_hears_of(client, answer["limits_revision"])
        close_all(client.allocate(number, big)[1])
        self.assertEqual(self.status()["clients"][0]["state"] != "over_limit", True)
        back = self.ctl_json("set-mode", "active")
        self.assertEqual(back["limits_revision"], answer["limits_revision"] + 1)
        self.assertEqual(self.status()["clients"][0]["state"], "over_limit")

    def test_set_proportion_by_id_and_by_bare_name(self):
        one, two = self.connect("one"), self.connect("two")
        first = one.hello.hello.client_id
        one.register("solver"), two.register("solver"), one.register("alone/name")
        done = self.ctl("set-proportion", f"{first}/solver", "0.5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cap 32 MiB", done.stdout)
        self.assertIn("limits revision", done.stdout)
        done = self.ctl("set-proportion", "solver", "0.5")
        self.assertEqual(done.returncode, 5)
        self.assertIn(f"{first}/solver, {two.hello.hello.client_id}/solver", done.stderr)
        self.assertEqual(self.ctl("set-proportion", "nobody", "0.5").returncode, 5)
        self.assertEqual(self.ctl("set-proportion", f"{first + 50}/solver", "0.5").returncode, 5)
        self.assertEqual(self.ctl("set-proportion", "alone/name", "0.25").returncode, 0)
        instances = {i["name"]: i for i in self.ctl_json("instances")["instances"]
                     if i["client"] == first}
        self.assertEqual(instances["alone/name"]["cap_bytes"], 16 * MIB)
        done = self.ctl("set-proportion", f"{two.hello.hello.client_id}/solver", "0.9")
        self.assertEqual(done.returncode, 6)
        self.assertIn("0.9", done.stderr)
        self.assertEqual(self.ctl_json("set-proportion", f"{first}/solver", "auto")["pool"],
                         "auto")

    def test_a_proportion_below_what_is_held(self):
        client, _ = self.solver(size=16 * MIB, proportion=0.5)
        number = client.hello.hello.client_id
        done = self.ctl("set-proportion", f"{number}/solver", "0.125")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("over its cap", done.stdout)
        self.assertIn(f"{number}/solver holds", done.stdout)
        self.assertEqual(self.status()["clients"][0]["state"], "over_limit")
        self.assert_hears_of(client, self.status()["daemon"]["limits_revision"])

    def test_warnings_are_shown(self):
        client, _ = self.solver(proportion=0.5)
        done = self.ctl("set-proportion", "solver", "0.97")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("less than 5 % is left for the auto pool", done.stdout)
        self.assertIn("less than 5 % is left for the auto pool", self.ctl("instances").stdout)
        self.ctl("set-proportion", "solver", "0.5")
        response, fds = client.allocate(
            1, [self.array("x", [1000, 2 * MIB], chunk_axis_index=0, total_runs=1000)])
        close_all(fds)
        self.assertEqual(response.warnings, 4)
        warned = self.ctl_json("instances")["instances"][0]["warnings"]
        self.assertEqual(warned, ["OVERSUBSCRIBED_20X"])
        self.assertIn("over 20 times the free memory", self.ctl("status").stdout)

    # -------------------------------------------------------------- ceilings

    def test_case_15_a_limit_below_what_is_held(self):
        """Free is 0, not 18 EB; the holder is shown; raising restores at once."""
        client, number = self.solver("greedy", 24 * MIB, proportion=1.0)
        more = [self.array("y", [8 * MIB], unchunkable=True)]
        user = str(os.geteuid())
        for who in (("--name", "greedy"), ("--uid", user), ("--gid", str(os.getegid())),
                    ("--daemon",)):
            with self.subTest(who):
                answer = self.limit(*who, "16MiB")
                self.assertEqual(answer["applied"], False)
                self.assertEqual(len(answer["over"]), 1)
                self.assertIn("24 MiB of 16 MiB", answer["over"][0])
                self.assert_hears_of(client, answer["limits_revision"])
                status = self.status()
                self.assertEqual(status["clients"][0]["held_bytes"], 24 * MIB)
                if who == ("--daemon",):
                    self.assertEqual(status["free_bytes"], 0)
                else:
                    self.assertEqual(status["clients"][0]["state"], "over_limit")
                    self.assertIn("over its limit", self.ctl("status").stdout)
                available = client.call("available", self.messages.Available(
                    instance_id=number))[0].available
                self.assertEqual(available.available, 0)
                result = self.refused(client.allocate, number, more)
                self.assertIn(result.code, (NO_MEMORY, UNCHUNKABLE_TOO_LARGE))
                self.assertEqual(result.largest, 0)
                self.assertEqual(result.limited_by, " ".join(who).replace("--", "")
                                 if who != ("--daemon",) else "device")
                answer = self.limit(*who, "64MiB" if who != ("--daemon",) else "100%")
                self.assertEqual(answer["applied"], True)
                close_all(client.allocate(number, more)[1])
                client.call("release", self.messages.Release(instance_id=number, labels=["y"]))
                self.assertNotEqual(self.status()["clients"][0]["state"], "over_limit")
                self.ctl_json("set-limit", *who, "none")

    def test_limits_as_percent_and_none(self):
        client, number = self.solver("half", proportion=1.0)
        half = [self.array("x", [32 * MIB], unchunkable=True)]
        over = [self.array("x", [34 * MIB], unchunkable=True)]
        for who in (("--name", "half"), ("--uid", str(os.geteuid())), ("--gid", str(os.getegid()))):
            with self.subTest(who):
                self.limit(*who, "50%")
                result = self.refused(client.allocate, number, over)
                self.assertEqual(result.limited_by, " ".join(who).replace("--", ""))
                close_all(client.allocate(number, half)[1])
                client.call("release", self.messages.Release(instance_id=number, all=True))
                self.ctl_json("set-limit", *who, "none")
                close_all(client.allocate(number, over)[1])
                client.call("release", self.messages.Release(instance_id=number, all=True))
        # A ceiling's percent is of the budget, the budget's of the device.
        self.limit("--daemon", "50%")
        self.assertEqual(self.status()["budget_bytes"], 32 * MIB)
        self.limit("--name", "half", "50%")
        self.assertEqual(self.status()["limits"][0]["limit_bytes"], 16 * MIB)
        for bad in ("0", "65MiB", "0%"):
            self.assertEqual(self.ctl("set-limit", "--daemon", bad).returncode, 1, bad)
        self.ctl_json("set-limit", "--daemon", "none")
        self.assertEqual(self.status()["budget_bytes"], 64 * MIB)

    def test_what_can_be_cut_is_cut_below_a_ceiling(self):
        client, number = self.solver("cut", proportion=1.0)
        self.limit("--name", "cut", "16MiB")
        response, fds = client.allocate(
            number, [self.array("x", [32, MIB], chunk_axis_index=0, total_runs=32)])
        close_all(fds)
        self.assertEqual((response.chunks, response.chunk_length), (2, 16))

    def test_the_manual_proportions_of_a_user_stay_below_its_ceiling(self):
        client, _ = self.solver(proportion=0.4)
        self.limit("--uid", str(os.geteuid()), "50%")
        request = self.messages.RegisterInstance(name="more", proportion=0.2)
        self.assertEqual(self.refused(client.call, "register_instance", request).code,
                         QUOTA_OVERCOMMITTED)
        client.register("fits", proportion=0.1)
        result = self.refused(client.call, "set_proportion",
                              self.messages.SetProportion(instance_id=1, proportion=0.45))
        self.assertEqual(result.code, QUOTA_OVERCOMMITTED)
        self.assertEqual(self.ctl("set-proportion", "solver", "0.45").returncode, 6)

    # -------------------------------------------------------------- messages

    def test_refusals_say_all_there_is_to_say(self):
        client, number = self.solver("teller", 8 * MIB, proportion=0.5)
        for arrays, code in (
            ([self.array("huge", [40 * MIB], unchunkable=True)], UNCHUNKABLE_TOO_LARGE),
            ([self.array("huge", [2, 40 * MIB], chunk_axis_index=0, total_runs=2)],
             RUN_TOO_LARGE),
        ):
            with self.subTest(code):
                result = self.refused(client.allocate, number, arrays)
                self.assertEqual(result.code, code)
                self.assertEqual((result.held, result.cap), (8 * MIB, 32 * MIB))
                self.assertEqual(result.asked, sum(int(a.shape[0] * (a.shape[1:] or [1])[0])
                                                   for a in arrays))
                self.assertEqual(result.limited_by, "cap")
                self.assertLessEqual(result.largest, 24 * MIB)
                for words in ("'solver'", "'huge'", f"asked {result.asked >> 20} MiB",
                              "held 8 MiB", "cap 32 MiB", "free ", "largest", "limited by cap"):
                    self.assertIn(words, result.text)
                close_all(client.allocate(
                    number, [self.array("fits", [result.largest], unchunkable=True)])[1])
                client.call("release", self.messages.Release(instance_id=number,
                                                             labels=["fits"]))

    # ----------------------------------------------------------- shared groups

    def member(self, name, batch=8):
        client = self.connect(name)
        number = client.register("solver", group="team", shared=True,
                                 proportion=0.125).instance_id
        requests = self.messages.ArrayRequests(instance_id=number, arrays=[
            self.array("x", [batch, MIB], chunk_axis_index=0, total_runs=batch)])
        client.call("queue_requests", self.messages.QueueRequests(requests=requests))
        return client, number

    def test_one_allocate_commits_what_all_processes_have_queued(self):
        members = [self.member(f"m{i}", 16) for i in range(3)]
        trigger, number = members[1]
        # An Allocate without requests: its own is queued, too.
        message, fds = trigger.call("allocate", self.messages.Allocate(instance_id=number))
        for fd in fds:
            os.close(fd)
        response = message.response
        partition = (response.runs, response.chunks, response.chunk_length, response.tail_length)
        self.assertEqual(partition, (16, 2, 8, 8))
        for client, other in (members[0], members[2]):
            message, fds = client.receive()
            for fd in fds:
                os.close(fd)
            got = message.response
            self.assertEqual((message.id, got.instance_id), (0, other))
            self.assertEqual((got.runs, got.chunks, got.chunk_length, got.tail_length), partition)
            self.assertEqual([list(a.shape) for a in got.arrays], [[8, MIB]])
            self.assertEqual(len(got.blocks), 1)
        self.assertEqual([c["held_bytes"] for c in self.status()["clients"]], [8 * MIB] * 3)
        groups = self.ctl_json("groups")["groups"]
        self.assertEqual([len(g["members"]) for g in groups], [3])

    def test_a_member_that_dies_before_or_in_between_is_left_out(self):
        for when in ("before", "in between"):
            with self.subTest(when):
                (first, number), (victim, _), (last, _) = (self.member(n) for n in "abc")
                if when == "before":
                    victim.close()
                    self.status_when(lambda s: len(s["clients"]) == 2)
                first.last_id += 1
                first.send("allocate", self.messages.Allocate(instance_id=number), first.last_id)
                victim.close()  # while segments are made
                for client in (first, last):
                    message, fds = client.receive()
                    self.assertEqual(message.result.code, 0, message.result.text)
                    self.assertEqual(message.response.chunks, 1)
                    for fd in fds:
                        os.close(fd)
                self.status_when(lambda s: s["draining_bytes"] == s["promised_bytes"] == 0
                                 and [c["held_bytes"] for c in s["clients"]] == [8 * MIB] * 2)
                first.close()
                last.close()
                self.status_when(lambda s: not s["clients"] and s["lent_bytes"] == 0)


class AutoShareTest(DaemonCase):
    """--auto-share instance."""

    options = ("--auto-share", "instance")

    def caps(self):
        return [i["cap_bytes"] // MIB for c in self.status()["clients"] for i in c["instances"]]

    def test_every_member_has_the_same(self):
        one, two = self.connect("one"), self.connect("two")
        for name in "abc":
            one.register(name)
        two.register("d")
        self.assertEqual(self.caps(), [16] * 4)
        two.register("m", proportion=0.5)
        self.assertEqual(self.caps(), [8] * 4 + [32])


@needs_root
class UserShareTest(AutoShareTest):
    """--auto-share user: among users, then their processes, then their members."""

    options = ("--auto-share", "user", "--socket-group", "nogroup")

    def test_every_member_has_the_same(self):
        mine = self.connect("mine")
        for name in "ab":
            mine.register(name)

        def others():
            client = RawClient(self.messages, self.daemon.path, "others")
            cap = client.register("c").cap
            return [cap // MIB, self.caps()]

        self.assertEqual(self.as_user((65533, 65534, []), others), [32, [16, 16, 32]])


class SameMomentTest(DaemonCase):
    device = "sim:1GiB"
    options = ("--mode", "passive")

    def test_case_13_two_who_ask_for_600_of_1024_at_the_same_moment(self):
        clients = [self.connect(f"c{i}") for i in range(2)]
        numbers = [c.register("solver").instance_id for c in clients]
        arrays = [self.array("x", [600 * MIB], unchunkable=True)]
        wins = [0, 0]
        for turn in range(1000):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            for i in order:
                clients[i].last_id += 1
                request = self.messages.ArrayRequests(instance_id=numbers[i], arrays=arrays)
                clients[i].send("allocate", self.messages.Allocate(
                    instance_id=numbers[i], requests=[request]), clients[i].last_id)
            granted = []
            for i in order:
                message, fds = clients[i].receive()
                for fd in fds:
                    os.close(fd)
                if message.result.code == 0:
                    granted.append(i)
                else:
                    self.assertIn(message.result.code, (NO_MEMORY, UNCHUNKABLE_TOO_LARGE))
            self.assertEqual(len(granted), 1, f"round {turn}")
            wins[granted[0]] += 1
            winner = clients[granted[0]]
            winner.call("release", self.messages.Release(instance_id=numbers[granted[0]],
                                                         all=True))
            if turn % 10 == 9:  # not only what the pool has
                self.assertLessEqual(self.status()["cached_bytes"], 1024 * MIB)
        self.assertEqual(sum(wins), 1000)
        self.assertGreater(min(wins), 0)


if __name__ == "__main__":
    unittest.main()
