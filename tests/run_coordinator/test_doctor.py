"""run_coordinator.doctor: what it says of the compiled kernels. That a machine can
train is tests/siafu/test_cli.py's."""

from __future__ import annotations

import pytest
from rich.console import Console

from run_coordinator import doctor, known_answer
from siafu import kernels


def test_doctor_names_the_instruction_set_of_the_compiled_kernels(monkeypatch):
    monkeypatch.setattr(kernels, "ISA", "avx2")
    assert doctor.compiled_kernels() == doctor.Check("gather kernel", True, "avx2, compiled")


@pytest.mark.skipif(kernels.ISA == "numpy", reason="no compiled kernels")
def test_doctor_says_whether_a_run_has_the_same_bits_here(monkeypatch):
    assert doctor._arithmetic() == doctor.Check("arithmetic", True, f"as everywhere ({known_answer.KNOWN})")
    monkeypatch.setattr(known_answer, "digest", lambda: "0123")
    check = doctor._arithmetic()
    assert not check.ok
    assert check.found.startswith(f"0123, must be {known_answer.KNOWN}: this machine computes other bits")


def test_without_compiled_kernels_a_machine_is_slow_but_can_train(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "ISA", "numpy")
    for check in ("_products", "_environment", "_disk"):
        monkeypatch.setattr(doctor, check, lambda: doctor.Check("something", True, "there"))
    report = doctor.examine()
    assert report["ok"]
    doctor._show(report, Console(soft_wrap=True))
    shown = capsys.readouterr().out
    assert "slow  gather kernel   no compiled kernel (no C++ compiler when siafu was installed)" in shown
    assert "install g++ and run make setup again" in shown


def test_doctor_says_how_to_get_localstack_where_it_is_not_there(monkeypatch):
    monkeypatch.setattr("infra.localstack.install.installed", lambda: False)
    expected = {"name": "localstack", "for": "python -m infra.localstack install", "found": None}
    assert doctor._localstack() == expected
    monkeypatch.setattr("infra.localstack.install.installed", lambda: True)
    assert doctor._localstack() == {"name": "localstack", "for": "--lambda-on localstack", "found": "installed"}


def test_doctor_without_node_says_what_it_is_for(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert doctor._node() == {"name": "node", "for": "siafu deploy, with npx; 20 or newer", "found": None}
