"""Purchases by card, as the fraud detection of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.models.markov import PURCHASE_SHARES
from riot_ops.streams.parameters import Count, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells, random_words

__all__ = ["CardsSource"]

LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
STATES = [a + b + c for a in PURCHASE_SHARES[0] for b in PURCHASE_SHARES[1] for c in PURCHASE_SHARES[2]]
SHARES = np.array(
    [
        a * b * c
        for a in PURCHASE_SHARES[0].values()
        for b in PURCHASE_SHARES[1].values()
        for c in PURCHASE_SHARES[2].values()
    ]
)
#: States of a stolen card: expensive purchases in quick succession.
FRAUD = ("HHS", "MHS", "LHS", "HHN", "HHL")
#: Share of the customers that make half of the purchases.
BUSY = 0.25


class CardsSource(TextLineSource):
    """Purchases: customer, transaction and state, such as ``8MFRVKTSJC,T00000000000,LNN``.

    A state is an amount (L, M, H: low 35 %, medium 53 %, high 12 %), whether the basket has an expensive item (N, H: no
    85 %, yes 15 %) and the time since the customer's last (L, N, S: large 35 %, normal 45 %, small 20 %). Few customers
    have states of five rare kinds alone. A quarter of the customers make half of the purchases besides those that all
    make equally often.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    customers : int, >= 1, default 500
    fraud : float, 0 to 1, default 0.03
        Share of the customers whose card was stolen.
    dirt : bool, default True
        0.6 % of the lines are bad: one cell alone, no state, or an unknown state.

    Shapes and rates
    ----------------
    27 bytes a line.

    Examples
    --------
    >>> source = CardsSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'AKBUAOD26X,T00000000001,MNN'
    """

    stream: ClassVar[str] = "cards"
    domain: ClassVar[str] = "purchases by card"

    customers: Count = 500
    fraud: Share = 0.03

    def lines(self, numbers: Numbers) -> pa.Array:
        most = np.where(self.uniforms(1, numbers) < (0.5 - BUSY) / (1 - BUSY), BUSY, 1.0)
        customer = np.minimum((self.uniforms(2, numbers) * most * self.customers).astype(np.int64), self.customers - 1)
        state = self.choices(3, numbers, SHARES)
        stolen = self.uniforms(4, customer) < self.fraud
        state[stolen] = len(STATES) + (self.random_words(5, numbers[stolen]) % np.uint64(len(FRAUD))).astype(np.int64)
        names = _names(self.customers, self.seed).take(pa.array(customer))
        states = pa.array([*STATES, *FRAUD]).take(pa.array(state))
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=11, padding="0")
        lines = join_cells(names, pc.binary_join_element_wise("T", digits, ""), states)
        bad = [names, join_cells(names, "T", ""), join_cells(names, "T", "XYZ")]
        return self.with_dirt(numbers, lines, 0.006, bad)


@functools.lru_cache(maxsize=4)
def _names(customers: int, seed: int) -> pa.Array:
    """Ten letters and digits for each customer."""
    chosen = random_words(seed, 6, np.arange(customers * 10)) % np.uint64(LETTERS.size)
    return pc.binary_join(
        pa.FixedSizeListArray.from_arrays(pa.array(LETTERS[chosen.astype(np.int64)]), 10).cast(pa.list_(pa.string())),
        "",
    )
