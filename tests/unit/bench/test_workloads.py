"""What the bench mirrors."""

from __future__ import annotations

import itertools
import json
import random
import zlib

import pytest
from bench.workloads import SMALL, WORKLOADS, json_document, values


def take(name: str, count: int, seed: int = 1) -> list[bytes]:
    """First values of a workload, from a small pool."""
    return list(itertools.islice(values(WORKLOADS[name], seed=seed, pool_size=50), count))


@pytest.mark.parametrize("name", WORKLOADS)
def test_values_are_a_function_of_the_seed(name: str) -> None:
    """A run can be repeated; partitions, which have seeds of their own, differ."""
    assert take(name, 300) == take(name, 300)
    assert take(name, 300) != take(name, 300, seed=2)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_two_values_are_equal(name: str) -> None:
    """So a duplicate or a swap cannot hide behind an equal record."""
    assert len(set(take(name, 5_000))) == 5_000


@pytest.mark.parametrize("name", WORKLOADS)
def test_values_have_the_size_that_the_workload_names(name: str) -> None:
    """Exactly for random bytes, within a fifth for documents."""
    workload = WORKLOADS[name]
    sizes = [len(value) for value in take(name, 200)]
    if workload.content == "random":
        assert set(sizes) == {workload.value_bytes}
    else:
        assert abs(sum(sizes) / len(sizes) - workload.value_bytes) < workload.value_bytes / 5


def test_documents_are_json_and_compress_about_three_times() -> None:
    """Neither random bytes, which do not compress, nor one document repeated, which compresses too well."""
    draw = random.Random(1)
    documents = [json_document(draw) for _ in range(500)]
    assert all(json.loads(value)["n"] == number for number, value in enumerate(take("json-zstd", 20)))
    content = b"".join(documents)
    assert 2.2 < len(content) / len(zlib.compress(content, 6)) < 4


def test_the_small_run_takes_workloads_that_exist() -> None:
    """A renamed workload must not make CI run nothing."""
    assert set(SMALL) <= set(WORKLOADS)
