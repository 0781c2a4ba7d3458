"""Makes the one Config of a run from defaults, a file, a preset, settings and flags."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any

from graph_data import source_flags
from run_coordinator import conditions, presets
from siafu import config as configs
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError, one_of

#: Short names of keyword arguments and command-line flags -> config keys.
SHORT = configs.flags()


def settings_of(assignments: Sequence[str]) -> dict[str, str]:
    """``SECTION.KEY=VALUE``, as on a command line, by key. ConfigError for one without a value."""
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    return settings


def keys_said(settings: Iterable[str], short: Iterable[str]) -> set[str]:
    """The keys of settings, and of flags or keyword arguments that are settings."""
    return {*settings, *(SHORT[name] for name in short if name in SHORT)}


def check_code(file: str | Path, settings: Mapping[str, Any]) -> None:
    """Raises ConfigError if a file sets ``lambda.handler`` and the command line's ``settings`` do not: the file may be
    somebody else's, and must not choose the code that Lambdas run."""
    section = configs.sections_of(file).get("lambda")
    handler = section.get("handler", configs.Lambda.handler) if isinstance(section, dict) else configs.Lambda.handler
    if handler != configs.Lambda.handler and "lambda.handler" not in settings:
        raise ConfigError(
            f"{file}: lambda.handler = {handler}: a file cannot choose what code Lambdas run; if it is meant, say "
            f"--set lambda.handler={handler}"
        )


def code_of(config: Config) -> list[str]:
    """Arguments beside ``--config`` for a config of our own making: the handler that ``check_code`` asks for."""
    handler = config.lambdas.handler
    return [] if handler == configs.Lambda.handler else ["--set", f"lambda.handler={handler}"]


def asked(
    source: Any,
    config: Config | str | Path | None,
    settings: Mapping[str, Any] | None,
    short: Mapping[str, Any],
    preset: str,
) -> tuple[Config, Any]:
    """``resolve``, and the graph in memory if that is the source, else None. ``source``: ... stands for the config's.
    Raises: ConfigError also if a keyword argument is an option of sources in files, and this source is in memory."""
    if source is ... or isinstance(source, str | os.PathLike):
        return resolve(name_of(source), config, settings, short, preset), None
    if source is None:
        raise ConfigError("source is None, must be a source's name or a graph: what made it returned nothing")
    for name in source_flags.sorted_out(short)[1]:
        raise ConfigError(
            f"{name}: is for a source that is read from files, and the graph is in memory: say it where the graph is "
            "made (siafu.from_pandas, siafu.from_arrays, ...)"
        )
    return resolve("", config, settings, short, preset), source


def name_of(graph: EllipsisType | str | os.PathLike[str], argument: str = "source") -> str:
    """The name of a graph argument, as ``resolve`` takes it; "" for ..., an omitted argument. Raises: ConfigError for
    an empty name, which would look like an omitted one."""
    if graph is ...:
        return ""
    if not (name := os.fspath(graph)):
        raise ConfigError(f"{argument} is empty: name a graph, or leave it out")
    return name


def resolve(
    source: str,
    config: Config | str | Path | None,
    settings: Mapping[str, Any] | None,
    short: Mapping[str, Any],
    preset: str = "",
    *,
    many: bool = False,
) -> Config:
    """Defaults < config < preset < settings < keyword arguments, and where tensor tasks
    run (``servers.backend``) decided.

    ``many``: the config is the base of runs in several modes or on several backends, so a setting may apply to some of
    them only. Raises: ConfigError for an unknown name, and for an explicit setting without effect
    (``run_coordinator.conditions``). Other settings of ``config`` that the new settings make ineffective return to
    their defaults. ``short`` may also hold options of the source (``graph_data.source_flags``), which then become part
    of its name.
    """
    base = config if isinstance(config, Config) else Config() if config is None else configs.load(config)
    changes = dict(settings or {})
    short, options = source_flags.sorted_out(short)
    for name, value in short.items():
        if name not in SHORT:
            known = [*SHORT, *(option for option in source_flags.OPTIONS if option not in SHORT)]
            raise ConfigError(f"{name}: unknown argument, {one_of(name, known)}")
        changes[SHORT[name]] = value
    if source:
        changes["data.source"] = source
    if preset:
        asked = base.replace({key: changes[key] for key in ("data.source", "model.name") if key in changes})
        changes = {**presets.find(preset, asked).settings, **changes}
    said = changes.keys() | _said_in(config)
    resolved = base.replace(changes)
    if options:
        resolved = resolved.replace({"data.source": source_flags.with_options(resolved.data.source, options)})
    if resolved.servers.backend == "auto" and not isinstance(resolved, BaselineConfig):
        resolved = resolved.replace({"servers.backend": _backend(resolved, said)})
    far = resolved.run.on == "aws" and resolved.servers.backend == "lambda"
    if far and "lambda.on" not in said and not isinstance(config, Config):  # a Config says local as it says aws
        resolved = resolved.replace({"lambda.on": "aws"})
    if many or isinstance(resolved, BaselineConfig):
        return resolved
    conditions.refuse(resolved, changes)
    if changes and config is not None and not isinstance(config, Config):  # does the file agree with itself?
        resolve("", config, {}, {})
    elif not isinstance(config, Config):
        conditions.refuse(resolved, said)
    return resolved.replace(conditions.idle(resolved))


def _said_in(config: Config | str | Path | None) -> set[str]:
    """Keys that a TOML file sets. For a Config, the keys that differ from their defaults: it does not record who set
    the others."""
    if config is None:
        return set()
    if isinstance(config, Config):
        mine = config.flat()
        return {key for key, value in Config().flat().items() if mine[key] != value}
    return {f"{section}.{key}" for section, values in configs.sections_of(config).items() for key in values}


def _backend(config: Config, said: Collection[str]) -> str:
    """The backend for ``servers.backend = auto``. Lambdas if a setting of Lambdas is given, except their region, which
    also prices servers. Lambdas too if servers are elsewhere. On one machine alone, its own threads are faster."""
    asked = any(key.startswith("lambda.") and key != "lambda.region" for key in said)
    return "lambda" if asked or config.run.on != "local" else "cpu"
