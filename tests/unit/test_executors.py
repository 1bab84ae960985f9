"""Traces are read here, in processes, or on a cluster: the results are the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from detector.batch.executors import Local, Ray
from detector.errors import ConfigError


def double(x: int) -> int:
    return 2 * x


def refuse(x: int) -> int:
    raise ConfigError(f"no such setting {x}")


def dies_once(path: str, x: int) -> int:
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def dies(x: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_calls(workers: int) -> None:
    assert list(Local(workers).map(double, [(i,) for i in range(5)])) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_wrong_with_the_settings_is_raised(workers: int) -> None:
    with pytest.raises(ConfigError, match="no such setting"):
        list(Local(workers).map(refuse, [(1,), (2,)]))


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_lost_worker_s_call_is_made_again(tmp_path: Path) -> None:
    mark = str(tmp_path / "died")
    assert list(Local(2).map(dies_once, [(mark, 1), (mark, 2)])) == [1, 2]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_call_that_kills_two_workers_gives_nothing() -> None:
    assert list(Local(2).map(dies, [(1,), (2,)])) == [None, None]


def test_ray_that_is_not_installed_is_one_line() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match="executor=ray needs the extra"):
            list(Ray().map(double, [(1,)]))
    else:
        assert list(Ray().map(double, [(1,), (2,)])) == [2, 4]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_lost_worker_s_call_is_made_again_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    mark = str(tmp_path / "died")
    assert list(Ray().map(dies_once, [(mark, 1), (mark, 2)])) == [1, 2]
    assert Path(mark).exists()
