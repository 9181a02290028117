"""Generated mails: their words, how many are spam, and dirt."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import MailsSource, TrainingMailsSource
from riot_ops.streams.dspbench.mails import ALL, HAM, SPAM
from tests.streams.generated_lines import lines


def mails(n=5000, kind=MailsSource, **options):
    return [json.loads(line) for line in lines(kind(dirt=False, **options), 0, n)]


def words(mail):
    return re.findall(r"\w+", mail["message"])


def test_lines_have_the_format_and_lengths_of_the_data_set():
    found = mails()
    assert [list(mail) for mail in found[:3]] == [["id", "message", "spam"]] * 3
    assert [mail["id"] for mail in found] == [f"a{i:05}" for i in range(5000)]
    lengths = [len(words(mail)) for mail in found]
    assert (min(lengths), max(lengths)) == (16, 45)
    assert np.mean(lengths) == pytest.approx(30.5, abs=0.4)
    assert all(mail["message"].endswith(".") for mail in found)


@pytest.mark.parametrize("share", [0.4, 0.1])
def test_share_of_spam(share):
    assert np.mean([mail["spam"] for mail in mails(spam=share)]) == pytest.approx(share, abs=0.02)


def test_words_are_of_three_vocabularies():
    found = mails(vocabulary=12)
    for spam, own, other in ((True, SPAM, HAM), (False, HAM, SPAM)):
        counts = Counter(word for mail in found if mail["spam"] == spam for word in words(mail))
        total = sum(counts.values())
        for vocabulary, share in ((ALL, 0.55), (own, 0.44), (other, 0.01)):
            assert sum(counts[word] for word in vocabulary) / total == pytest.approx(share, rel=0.1)
            zipf = 1 / np.arange(1, 13)
            wanted = share * zipf / zipf.sum() * total
            assert [counts[word] for word in vocabulary] == pytest.approx(wanted, rel=0.35, abs=20)
        assert len(counts) == 36
    assert 2900 < len({word for mail in mails(20_000) for word in words(mail)}) <= 3000


def test_training_mails_differ():
    known, asked = mails(kind=TrainingMailsSource), mails()
    assert [mail["id"] for mail in known[:2]] == ["t00000", "t00001"]
    assert not {mail["message"] for mail in known} & {mail["message"] for mail in asked}
    same = np.mean([a["spam"] == b["spam"] for a, b in zip(known, asked, strict=True)])
    assert same == pytest.approx(0.4**2 + 0.6**2, abs=0.03)


@pytest.mark.long
def test_dirty_lines_have_their_share_and_form():
    kinds = Counter()
    for line in lines(MailsSource(), 0, 100_000):
        try:
            mail = json.loads(line)
        except ValueError:
            kinds["cut"] += 1
        else:
            kinds["no id" if "id" not in mail else mail.get("message", "no message")] += 1
    for kind in ("cut", "no id", "no message", "?!."):
        assert kinds[kind] == pytest.approx(150, rel=0.3), kind


def test_options_and_misuse():
    assert repr(generate("mails", messages=7, spam=0.5)) == (
        "MailsSource(messages=7, seed=0, dirt=True, spam=0.5, vocabulary=1000)"
    )
    assert isinstance(generate("mails_training", vocabulary=9), TrainingMailsSource)
    for options in ({"spam": 1.5}, {"spam": -0.1}, {"vocabulary": 0}, {"vocabulary": 2.5}, {"vocabulary": 5001}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            MailsSource(**options)
