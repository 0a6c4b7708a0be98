"""The project around a folder, as pytest finds it: for commands that run without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_gemm.errors import ConfigError

_FILES = (
    ("pytest.toml", "pytest"),
    (".pytest.toml", "pytest"),
    ("pytest.ini", "pytest"),
    (".pytest.ini", "pytest"),
    ("pyproject.toml", "tool.pytest"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)
"""Where pytest looks for its settings, in its order, and the section that holds them."""


def baselines_folder(start: Path) -> Path:
    """The folder of baselines of the project that a folder belongs to: ini key gemm_baselines.

    The project's root is the nearest folder, from ``start`` up, with settings of pytest; without
    any it is ``start``. Raises ConfigError for settings that cannot be read.
    """
    for folder in (start, *start.parents):
        for name, section in _FILES:
            settings = _settings(folder / name, section)
            if settings is not None:
                return folder / str(settings.get("gemm_baselines") or "baselines")
    return start / "baselines"


def _settings(path: Path, section: str) -> Mapping[str, Any] | None:
    """The section of a file; None where there is none. A file of pytest's own always has one."""
    if not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        found = _of_toml(text, section) if path.suffix == ".toml" else _of_ini(text, section)
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"{path}: it cannot be read ({line})") from None
    return {} if found is None and path.name.lstrip(".").startswith("pytest.") else found


def _of_toml(text: str, section: str) -> Mapping[str, Any] | None:
    import tomllib

    table: Any = tomllib.loads(text)
    for key in section.split("."):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        return None
    return table.get("ini_options", table) or None


def _of_ini(text: str, section: str) -> Mapping[str, Any] | None:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from None
    return dict(parser[section]) if parser.has_section(section) else None
