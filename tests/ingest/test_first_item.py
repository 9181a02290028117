"""The first item of an iterator."""

import threading

import pytest

from riot_ops.ingest.first_item import FirstItem


def test_item_that_is_there_is_given_and_kept():
    first = FirstItem(iter(range(5)))
    assert first.wait(60) == [0]
    assert [*first.all_items()] == [0, 1, 2, 3, 4]


def test_iterator_without_items():
    first = FirstItem(iter(()))
    assert first.wait(60) == []
    assert [*first.all_items()] == []


def test_item_that_has_not_come_is_waited_for_later():
    may = threading.Event()

    def items():
        assert may.wait(60)
        yield "late"
        yield "later"

    first = FirstItem(items())
    assert first.wait(0) is None
    may.set()
    assert [*first.all_items()] == ["late", "later"]


def test_error_of_the_iterator_is_raised():
    def items():
        raise OSError("gone")
        yield

    with pytest.raises(OSError, match="gone"):
        FirstItem(items()).wait(60)


def test_generator_is_closed_with_the_one_that_reads_it():
    closed = threading.Event()

    def items():
        try:
            yield from range(5)
        finally:
            closed.set()

    every = FirstItem(items()).all_items()
    assert (next(every), next(every)) == (0, 1)
    every.close()
    assert closed.is_set()
