"""Medians, spread, and confidence intervals by order statistics: no distribution is assumed."""

from math import comb
from statistics import median

CONFIDENCE = 0.95


def interval(values):
    """(low, high) around the median: the narrowest pair of order statistics that covers it with 95 %.

    Under six values not even the extremes do: then they are given, and the coverage says so.
    """
    ordered = sorted(values)
    count = len(ordered)
    cut = 0
    while cut + 1 < (count + 1) // 2 and coverage(count, cut + 1) >= CONFIDENCE:
        cut += 1
    return ordered[cut], ordered[count - 1 - cut]


def coverage(count, cut):
    """How surely the median lies between the order statistics `cut` from both ends (a sign test)."""
    return 1 - 2 * sum(comb(count, k) for k in range(cut + 1)) / 2**count


def spread(values):
    """Median and interval, as the report shows a figure."""
    low, high = interval(values)
    return {"median": round(median(values), 3), "low": round(low, 3), "high": round(high, 3)}


def ratio(values, goal, sense):
    """A goal: it fails only when the whole interval is on the wrong side."""
    low, high = interval(values)
    ok = low <= goal if sense == "<=" else high >= goal
    return {
        "value": round(median(values), 3), "low": round(low, 3), "high": round(high, 3),
        "goal": goal, "sense": sense, "ok": ok, "rounds": len(values),
    }
