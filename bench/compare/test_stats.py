"""What decides whether a goal is reached: intervals, ratios, which rounds count. Run by tests/all.sh."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import goals  # noqa: E402: the path above must come first
import load  # noqa: E402
import stats  # noqa: E402


def figure(cpu, void=()):
    return {"server_cpu_us": cpu, "rps": 1e6 / cpu, "latency_us": {"p99": cpu}, "void_because": list(void)}


class Intervals(unittest.TestCase):
    def test_the_interval_covers_95_percent_and_no_pair_within_it_does(self):
        for count, cut in ((6, 0), (7, 0), (8, 0), (9, 1), (12, 2), (20, 5)):
            low, high = stats.interval(list(range(count)))
            self.assertEqual((low, high), (cut, count - 1 - cut), count)
            self.assertGreaterEqual(stats.coverage(count, cut), 0.95)
            self.assertLess(stats.coverage(count, cut + 1), 0.95)

    def test_few_rounds_give_their_extremes(self):
        self.assertEqual(stats.interval([3.0, 1.0, 2.0]), (1.0, 3.0))

    def test_a_goal_fails_only_when_the_whole_interval_is_beyond_it(self):
        rounds = [1.0, 1.2, 1.3, 1.1, 1.4, 1.2, 1.3]
        self.assertTrue(stats.ratio(rounds, 1.05, "<=")["ok"])
        self.assertFalse(stats.ratio(rounds, 0.99, "<=")["ok"])
        self.assertTrue(stats.ratio(rounds, 1.35, ">=")["ok"])
        self.assertFalse(stats.ratio(rounds, 1.41, ">=")["ok"])
        self.assertEqual(stats.ratio(rounds, 1, "<=")["value"], 1.2)


class Goals(unittest.TestCase):
    def setUp(self):
        self.rounds = goals.Rounds()
        for number, (weir, null) in enumerate([(4.4, 4.0), (5.0, 4.0), (4.0, 4.0)]):
            self.rounds.put("weir-compact", "c64", number, figure(weir))
            self.rounds.put("null-compact", "c64", number, figure(null))

    def test_ratios_are_of_one_round_each(self):
        found = goals.ratios(self.rounds, {})
        self.assertEqual(list(found), ["1 compact/null c64"])
        seen = found["1 compact/null c64"]
        self.assertEqual((seen["value"], seen["low"], seen["high"], seen["rounds"]), (1.1, 1.0, 1.25, 3))

    def test_a_round_without_its_partner_or_with_another_load_is_left_out(self):
        self.rounds.put("weir-compact", "c64", 3, figure(9.9))
        self.rounds.put("weir-compact", "c64", 1, figure(5.0, ["not in time"]))
        seen = goals.ratios(self.rounds, {})["1 compact/null c64"]
        self.assertEqual((seen["rounds"], seen["high"]), (2, 1.1))

    def test_the_bare_mac_is_subtracted_in_its_own_round(self):
        self.rounds.put("weir-jws", "p16", 0, figure(1.0))
        self.rounds.put("null-jws", "p16", 0, figure(0.5))
        self.rounds.mac_us[0] = 0.2
        found = goals.ratios(self.rounds, {goals.RESERVES: [5.0], goals.RSS: [12.0], goals.IDLE: [2000]})
        self.assertEqual(found["2 jws-null-mac p16 us"]["value"], 0.3)
        self.assertFalse(found["2 jws-null-mac p16 us"]["ok"])
        self.assertEqual(found[goals.RESERVES]["value"], 5.0)
        self.assertTrue(found[goals.RSS]["ok"])
        self.assertFalse(found[goals.IDLE]["ok"])


class Answers(unittest.TestCase):
    def test_other_answers_than_the_expected_ones_end_a_measurement(self):
        class Server:
            name = "x"

            @staticmethod
            def words():
                return ""

        report = {"answered": 1000, "answers": {"SECKILL_SOLD_OUT": 999}, "transport_errors": 1, "failures": {}}
        self.assertEqual(load.check(report, Server, "SECKILL_SOLD_OUT"), 0.999)
        for worse in ({"answers": {"SECKILL_SOLD_OUT": 998}}, {"transport_errors": 2}, {"answered": 0}):
            with self.assertRaises(load.WrongAnswers):
                load.check({**report, **worse}, Server, "SECKILL_SOLD_OUT")


if __name__ == "__main__":
    unittest.main()
