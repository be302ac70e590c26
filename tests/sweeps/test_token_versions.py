"""ESS by token versions: the bounds hold in the twin, which knows every rollout's token lag; the command."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from oracle.level23 import run_level23
from strategies import general_configs
from strategies.general_configs import general_settings

import lagsweep as ls
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.results.token_versions import token_version_ess

BASE = ls.PipelineConfig(
    rollout_workers=8, duration_seconds=900, sync_seconds=4, max_policy_lag=20, max_queue_tokens=20_000
)
STYLES = ["background", "drain", "pause", "abort"]


@settings(max_examples=40)
@given(general_settings())
def test_the_bounds_hold_for_what_the_twin_knows_of_every_rollout(drawn):
    run = run_level23(general_configs.to_twin(drawn))
    batches = [batch["details"] for batch in run["batches"] if batch["measured"]]
    details = [detail for batch in batches for detail in batch]
    if not details:
        return

    def ess(some, lag):
        return len(some) / math.fsum(math.exp(0.04 * one[lag]) for one in some)

    truth = np.mean([ess(batch, "token_lag") for batch in batches])
    assert np.mean([ess(batch, "lag") for batch in batches]) <= truth * (1 + 1e-12)
    assert ess(details, "token_lag") <= math.exp(-0.04 * run["mean_end_lag"]) * (1 + 1e-12)


@pytest.fixture(scope="module")
def ds():
    return ls.run_sweep(BASE, {"publication": STYLES, "max_lag": [2, 20]}, 6, progress=False)


def test_the_bounds_are_those_of_the_metrics(ds):
    found = token_version_ess(ds)

    assert found.ess_by_start_version.dims == ds.status.dims
    np.testing.assert_array_equal(found.ess_by_start_version, ds.mean_expected_normalized_ess)
    on = {"publication": ["pause", "abort"]}
    bound = np.exp(-0.04 * ds.mean_end_lag.sel(on))
    np.testing.assert_allclose(found.ess_by_end_version.sel(on), bound)
    low = ds.trained_tokens_per_second * found.ess_by_start_version
    np.testing.assert_allclose(found.effective_tokens_per_second_low, low)
    # What goes on under newer weights may earn something; what does not, nothing.
    gain = found.ess_by_end_version - found.ess_by_start_version
    assert (gain.sel(on) > 0).all()
    assert (gain.sel(publication=["background", "drain"]) == 0).all()


def test_it_works_as_metrics_do(ds):
    more = ds.assign(token_version_ess(ds))

    assert ls.recommend(more, maximize="effective_tokens_per_second_low").cell is not None
    assert ls.frontier(more, ess="ess_by_end_version").frame.height == 8


def test_an_axis_of_drifts_is_taken_cell_by_cell():
    base = BASE.replace(publication="pause")
    ds = ls.run_sweep(base, {"drift_per_version": [0.1, 0.3]}, 2, progress=False)
    found = token_version_ess(ds).ess_by_end_version

    lags = ds.mean_end_lag.sel(drift_per_version=0.3)
    np.testing.assert_allclose(found.sel(drift_per_version=0.3), np.exp(-0.09 * lags))
    assert found.dims == ds.status.dims


def test_what_has_no_bound_is_refused():
    level_1 = ls.run_sweep(BASE, {"max_lag": [1]}, 1, progress=False)
    with pytest.raises(ConfigError, match="mean_end_lag"):
        token_version_ess(level_1)
    longer = BASE.replace(publication="pause", drift_length_exponent=0.5)
    with pytest.raises(ConfigError, match="drift_length_exponent"):
        token_version_ess(ls.run_sweep(longer, {"max_lag": [1]}, 1, progress=False))


class TestTheCommand:
    def run(self, *arguments):
        with pytest.raises(SystemExit) as ended:
            main(["ledger", "drift", *arguments])
        return ended.value.code

    def test_tokens_give_a_range_for_sequences(self, capsys):
        assert self.run("--token-ess", "0.9704", "--ess-at-lag-0", "0.9964", "--tokens", "28", "--json") == 0
        found = json.loads(capsys.readouterr().out)["drift_per_version"]

        assert found["token"] == pytest.approx(math.sqrt(-math.log(0.9704 / 0.9964)))
        assert found["sequence, apart"] == pytest.approx(found["token"] * math.sqrt(28))
        assert found["sequence, together"] == pytest.approx(found["token"] * 28)
        assert found["geometric mean, together"] == pytest.approx(found["token"])

    def test_a_correlation_gives_one_number(self, capsys):
        assert self.run("--kl", "0.02", "--tokens", "100", "--correlation", "0.1", "--json") == 0
        found = json.loads(capsys.readouterr().out)

        assert list(found["drift_per_version"]) == ["token", "sequence", "geometric mean"]
        assert found["drift_per_version"]["token"] == pytest.approx(0.2)
        assert found["normalized_ess"]["token"] == pytest.approx(
            [math.exp(-0.04 * lag) for lag in (1, 2, 4, 8)]
        )

    def test_a_sequence_gives_a_range_for_tokens(self, capsys):
        assert self.run("--sequence-ess", "0.1", "--tokens", "28", "--lag", "2", "--json") == 0
        found = json.loads(capsys.readouterr().out)["drift_per_version"]

        assert found["token, together"] < found["token, apart"] < found["sequence"]
        assert found["sequence"] == pytest.approx(math.sqrt(math.log(10) / 2))

    def test_one_thing_is_asked(self, capsys):
        assert self.run("--tokens", "28") == 2
        assert self.run("--kl", "0.1", "--token-ess", "0.9", "--tokens", "28") == 2
        assert "give one of them (got 2)" in capsys.readouterr().err
