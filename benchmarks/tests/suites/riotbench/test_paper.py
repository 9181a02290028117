"""The paper's figures."""

from __future__ import annotations

from riot_bench.suites.riotbench.paper import APPS, CATALOGUE, MICRO, paper_figures


def test_figures_of_the_paper() -> None:
    assert (MICRO["XML"].rate, MICRO["BLF"].rate, MICRO["KAL"].rate, MICRO["DAC"].rate) == (310, 68e3, 68e3, 68e3)
    assert MICRO["AVG"].at_least
    # its thirteen tasks, with the query and without the publish-subscribe source
    thirteen = {"XML", "BLF", "AVG", "DAC", "KAL", "SOM", "DTC", "MLR", "SLR", "ABD", "ABU", "ATQ", "MQP"}
    assert set(MICRO) == thirteen
    assert thirteen < set(CATALOGUE) and len(set(CATALOGUE)) == len(CATALOGUE) == 33, "and the twenty later ones"
    assert paper_figures("micro", "MQS").peak == ""
    assert set(APPS) == {"stats/city", "stats/taxi", "pred/city", "pred/taxi"}
    assert paper_figures("micro", "VAR").peak == ""
