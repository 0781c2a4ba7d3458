"""Calibration finds the constants of a machine that is simulated; observing a real run finds its members."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cost_planner.plan import calibrate, machine_rates
from cost_planner.plan.calibrate import (
    THREADS,
    Measured,
    Setting,
    errors,
    fitted,
    predicted_s,
    refuse_poor,
)
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.here import local_plan
from cost_planner.plan.machine_rates import Rates, measured
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.observe import observed
from cost_planner.plan.speeds import WALLS, Speeds
from cost_planner.plan.work import Counts, processor_s
from run_coordinator import run_config
from siafu import variables
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import ModelSpec

TRUE = replace(
    Speeds(),
    value_ns=0.2,
    missed_ns=0.3,
    copy_ns=3.0,
    main_tensor_s=300e-6,
    hop_s=500e-6,
    usable=0.95,
    usable_among=0.8,
    throttled=0.7,
)
#: Two densities, and both backends.
SETTINGS = (
    Setting("cpu", intervals=4),
    Setting("cpu", intervals=12, hidden=16),
    Setting("cpu", parts=2, intervals=6, layers=3),
    Setting(intervals=4, environments=1),
    Setting(intervals=12, hidden=16),
    Setting(parts=2, intervals=6, hidden=128),
    Setting("cpu", intervals=4, graph="sparse"),
    Setting(intervals=6, graph="sparse"),
    Setting("cpu", intervals=4, graph="narrow"),
    Setting(mode="no-pipe", environments=1),
    Setting(intervals=6, hidden=128, graph="sparse", environments=4, throttled=True),
)


def as_if(setting: Setting, speeds: Speeds) -> Measured:
    """What would be measured on a machine of these speeds."""
    config = Config().replace({"data.source": "none", **setting.settings})
    degree = 400 if setting.graph == "dense" else 20
    features = 20 if setting.graph == "narrow" else 100
    counts = Counts(
        setting.parts, 12_000 / setting.parts, degree * 12_000 / setting.parts, 2_000.0 * (setting.parts > 1)
    )
    spec = ModelSpec("gcn", features, 40, 6_000, (setting.hidden,) * (setting.layers - 1))
    plan = local_plan(config, spec, counts, speeds)
    spent = processor_s(plan)
    cpu_s = {where[0]: spent.get(thread, 0.0) for thread, (_, where) in THREADS.items()}
    seen = calibrate.Observed(predicted_s(plan), 0.0, cpu_s, {})
    return Measured(setting, config, spec, counts, seen)


@pytest.mark.long
def test_the_constants_of_a_machine_are_found():
    runs = [as_if(setting, TRUE) for setting in SETTINGS]
    found = fitted(runs).speeds
    assert found.missed_ns == pytest.approx(TRUE.missed_ns, rel=0.02)
    assert [getattr(found, name) for name in WALLS] == [getattr(TRUE, name) for name in WALLS]
    assert [found.value_ns, found.copy_ns, found.read_ns] == pytest.approx([0.2, 3.0, TRUE.read_ns], rel=0.02)
    assert max(abs(off) for off in errors(runs, found)) < 0.02


@pytest.mark.long
def test_what_was_measured_by_itself_stays():
    runs = [as_if(setting, TRUE) for setting in SETTINGS]
    free, found = (
        fitted(runs).speeds,
        fitted(runs, Rates(3 * TRUE.flop_ns, 0.1, 0.2, 1.5, 0.3, 20, 10, cache_mib=32, core_cache_mib=2)),
    )
    held = found.speeds
    assert free.flop_ns == pytest.approx(TRUE.flop_ns, rel=0.02)
    assert held.flop_ns == pytest.approx(3 * TRUE.flop_ns)
    by_themselves = held.word_ns, held.word_back_ns, held.copy_ns, held.value_ns
    assert by_themselves == (0.1, 0.2, 1.5, 0.3)  # no fit changes these
    assert held.element_ns + held.value_ns < free.element_ns + free.value_ns  # what else a task does is then less
    assert found.memory == Bandwidth(20e9, 32 * 2**20, random_share=0.5, core_cache_bytes=2 * 2**20)


@pytest.mark.long
def test_products_and_memory_are_measured_with_one_blas_thread(monkeypatch):
    """In a process of its own: BLAS has chosen its threads when NumPy is imported."""
    told: dict[str, str] = {}

    def run(command, *, env, **more):
        told.update(env)
        return real(command, env=env, **more)

    real = machine_rates.subprocess.run
    monkeypatch.setattr(machine_rates.subprocess, "run", run)
    found = measured()
    assert {told[name] for name in variables.THREADS} == {"1"}
    assert 1e-4 < found.flop_ns < 10
    assert 1e-3 < found.word_ns < 100
    assert 1e-3 < found.word_back_ns < 100
    assert 1e-3 < found.copy_ns < 100
    assert 0.1 < found.memory_gb_per_s < 10_000
    assert 0.1 < found.random_gb_per_s < 10_000
    assert 1e-3 < found.value_ns < 10
    assert found.cache_mib >= found.core_cache_mib > 0


def test_a_poor_fit_is_refused_with_the_run_that_is_worst():
    runs = [as_if(setting, TRUE) for setting in SETTINGS[:3]]
    refuse_poor(runs, Calibration(TRUE, error=0.1))
    disturbed = replace(runs[1], seen=replace(runs[1].seen, epoch_s=3 * runs[1].seen.epoch_s))
    with pytest.raises(ConfigError) as refused:
        refuse_poor([runs[0], disturbed, runs[2]], Calibration(TRUE, error=0.67))
    told = str(refused.value)
    assert "\n" not in told
    assert runs[1].setting.words in told
    assert "-67%" in told
    assert "repeat siafu plan --calibrate on an idle machine" in told


@pytest.mark.long
def test_a_real_run_is_seen_by_its_members():
    if not Path(f"/proc/self/task/{os.getpid()}/schedstat").is_file():
        pytest.skip("no /proc")
    settings = {"train.mode": "pipe", "train.intervals": 16, "lambda.count": 1, "train.eval_every": 0}
    seen = observed("digits", {"servers.backend": "lambda", **settings}, 8)
    assert seen.epoch_s > 0
    assert {role for role, _ in seen.cpu_s} == {"graph_server", "param_server", "lambda_funcs"}
    assert seen.usage["tasks"] == pytest.approx(16 * 3, rel=0.3)  # of each interval


def test_a_calibration_is_kept_by_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert Calibration.load() == Calibration()
    calibrated = Calibration(
        TRUE,
        0.08,
        "this one",
        "2026-11-22",
        memory_gb_per_s=40.0,
        random_gb_per_s=30.0,
        cache_mib=32.0,
        core_cache_mib=1.0,
    )
    calibrated.save(calibrate.own_path())
    assert Calibration.load() == calibrated


def test_a_calibration_of_before_knows_nothing_of_memory(tmp_path):
    speeds = {**asdict(Speeds()), "value_ns": 0.1}
    (tmp_path / "c.json").write_text(json.dumps({"speeds": speeds, "error": 0.2}))
    found = Calibration.load(tmp_path / "c.json")
    assert (found.speeds.value_ns, found.error, found.memory) == (0.1, 0.2, Bandwidth())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"speeds": {}, "cache_mib": "large"}',
        '{"speeds": {"warp_ns": 1}}',
        '{"speeds": {"value_ns": "fast"}}',
    ],
)
def test_a_file_that_is_no_calibration_is_named(tmp_path, text):
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.json: (no calibration|a calibration by another version of siafu)"):
        Calibration.load(file)


def test_settings_are_each_of_their_own():
    assert len(set(calibrate.SETTINGS)) == len(calibrate.SETTINGS)


def test_siafu_train_takes_every_setting():
    """It refuses flags without an effect: those of Lambdas for CPUs, staleness for pipe."""
    for setting in (*calibrate.SETTINGS, Setting(mode="async", staleness=1)):
        config = run_config.resolve("digits", None, setting.settings, {}, "")
        assert config.train.intervals == setting.intervals
        assert config.servers.backend == setting.backend
