"""What the records of a file are like, by version and by group, counted while they are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...kernels.errors import many

_MERGE_ROWS = 200_000
_MOST_VERSIONS = 1000
_MOST_SIZES = 5  # of groups, in a line


class RecordStatistics:
    """Sums by behaviour version; memory grows with the number of versions, some 56 bytes each."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []

    def add(
        self,
        versions: NDArray[np.int64],
        rewards: NDArray[np.float64],
        tokens: NDArray[np.int64],
        bad: NDArray[np.bool_],
    ) -> None:
        """Count records; a version or a number of tokens of -1 and a reward of NaN are none."""
        if not versions.size:
            return
        frame = pl.DataFrame({"version": versions, "reward": rewards, "tokens": tokens, "bad": bad})
        reward = pl.col("reward").fill_nan(None)
        tokens_there = pl.col("tokens").filter(pl.col("tokens") >= 0)
        self._parts.append(
            frame.group_by("version").agg(
                records=pl.len().cast(pl.Int64),
                bad=pl.col("bad").sum().cast(pl.Int64),
                rewards=reward.count().cast(pl.Int64),
                reward_sum=reward.sum(),
                reward_least=reward.min(),
                reward_most=reward.max(),
                lengths=tokens_there.count().cast(pl.Int64),
                tokens=tokens_there.sum(),
                longest=tokens_there.max(),
            )
        )
        if sum(part.height for part in self._parts[1:]) > max(_MERGE_ROWS, self._parts[0].height):
            self._parts = [self.by_version()]

    def by_version(self) -> pl.DataFrame:
        """Return one row per version, rising; -1 stands for records without one."""
        if not self._parts:
            return pl.DataFrame(schema={"version": pl.Int64})
        sums = [
            pl.col(name).sum() for name in ("records", "bad", "rewards", "reward_sum", "lengths", "tokens")
        ]
        ends = [pl.col("reward_least").min(), pl.col("reward_most").max(), pl.col("longest").max()]
        return pl.concat(self._parts).group_by("version").agg(*sums, *ends).sort("version")

    def as_dict(self, groups: pl.DataFrame | None) -> dict[str, Any]:
        """Return the statistics as plain values.

        Parameters
        ----------
        groups : polars.DataFrame, optional
            One row per group, as the batch rules keep it.
        """
        table = self.by_version()
        rows = [_version(row) for row in table.head(_MOST_VERSIONS).iter_rows(named=True)]
        return {
            "versions": table.height,
            "by_version": rows,
            "groups": None if groups is None else _groups(groups),
        }


def _version(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": None if row["version"] < 0 else row["version"],
        "records": row["records"],
        "bad_records": row["bad"],
        "mean_reward": row["reward_sum"] / row["rewards"] if row["rewards"] else None,
        "min_reward": row["reward_least"],
        "max_reward": row["reward_most"],
        "mean_response_tokens": row["tokens"] / row["lengths"] if row["lengths"] else None,
        "max_response_tokens": row["longest"],
    }


def _groups(groups: pl.DataFrame) -> dict[str, Any]:
    """Count groups by size, and those whose rewards are all equal: they have no signal for a baseline."""
    sizes = groups.group_by("size").len().sort("len", "size", descending=[True, False])
    several = (pl.col("size") > 1) & (pl.col("rewards") == pl.col("size"))
    return {
        "groups": groups.height,
        "sizes": {str(size): count for size, count in sizes.head(20).iter_rows()},
        "equal_rewards": groups.filter(several & (pl.col("least") == pl.col("most"))).height,
        "with_rewards": groups.filter(several).height,
    }


def statistics_text(statistics: dict[str, Any]) -> list[str]:
    """Write the statistics as lines: a table by version, of many the first and the last, and the groups."""
    rows = statistics["by_version"]
    names = ("version", "records", "bad", "mean reward", "least", "most", "mean tokens", "longest")
    table: list[tuple[str, ...]] = [names]
    for row in rows if len(rows) <= 20 else [*rows[:10], None, *rows[-10:]]:
        table.append(("...",) * len(names) if row is None else tuple(_cell(value) for value in row.values()))
    widths = [max(len(row[i]) for row in table) for i in range(len(names))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in table]
    if statistics["versions"] > len(rows):
        lines.append(f"... and {many(statistics['versions'] - len(rows), 'newer version')}")
    groups = statistics["groups"]
    if groups is not None:
        sizes = [f"{count:,} with {many(int(size), 'rollout')}" for size, count in groups["sizes"].items()]
        shown = ", ".join([*sizes[:_MOST_SIZES], *(["others"] if len(sizes) > _MOST_SIZES else [])])
        lines += ["", f"{many(groups['groups'], 'group')}{': ' if shown else ''}{shown}"]
        if groups["with_rewards"]:
            lines.append(
                f"{groups['equal_rewards']:,} of {many(groups['with_rewards'], 'group')} "
                "(of several rollouts, each with a reward) have equal rewards only"
            )
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
