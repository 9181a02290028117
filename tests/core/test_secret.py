"""Secrets: their values are usable, and never appear in texts, JSON or errors."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

from riot_ops import ConfigError, Secret
from riot_ops.core.operator import StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.secret import check_secret
from riot_ops.runtime.snapshot import task_identity
from riot_ops.task import KeyedTask, StatelessTask, Task, isolated_tasks, register

WORD = "s3cr3t-pässword"


@dataclass(frozen=True, kw_only=True)
class Login(StatelessTask):
    """A task with a secret."""

    code: ClassVar[str] = "XLOGIN"

    user: str = "u"
    password: Secret | None = None

    def apply(self, batch: pa.RecordBatch, rejects: RejectedRecords) -> pa.RecordBatch:
        return batch


@dataclass(frozen=True, kw_only=True)
class KeyedLogin(KeyedTask):
    """A task with state and a secret."""

    password: Secret | None = None

    def state_fields(self) -> Mapping[str, StateField]:
        return {}

    def update(self, batch, slots, state, rejects):
        return batch


@pytest.fixture
def registered():
    with isolated_tasks():
        register(Login)
        yield


def test_value_never_appears_in_a_text():
    secret = Secret(WORD)
    task = Login(password=secret)
    for text in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>40}",
        repr(task),
        repr(vars(task)),
        f"{secret!s:>10}",
    ):
        assert WORD not in text
    assert not hasattr(secret, "__dict__")
    assert secret.reveal() == task.password.reveal() == WORD


def test_equality_and_hash():
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret.env("A") == Secret.env("A") != Secret.env("B")
    assert Secret("A") != Secret.env("A") and Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret.env("a")}) == 2
    assert Login(password=Secret("a")) == Login(password=Secret("a"))


def test_secret_is_immutable():
    for name in Secret.__slots__:
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(Secret("a"), name, "b")
        with pytest.raises(AttributeError, match="cannot be changed"):
            delattr(Secret("a"), name)


@pytest.mark.parametrize("secret", [Secret(WORD), Secret.env("SOME_NAME")])
def test_copy_and_pickle_preserve_the_secret(secret):
    assert pickle.loads(pickle.dumps(secret)) == secret == copy.deepcopy(secret)


def test_secret_from_an_environment_variable(monkeypatch):
    secret = Secret.env("RIOT_OPS_TEST_SECRET")
    monkeypatch.delenv("RIOT_OPS_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match=r"RIOT_OPS_TEST_SECRET.* is not set"):
        secret.reveal()
    monkeypatch.setenv("RIOT_OPS_TEST_SECRET", "")
    with pytest.raises(ConfigError, match=r"RIOT_OPS_TEST_SECRET.* is empty"):
        secret.reveal()
    monkeypatch.setenv("RIOT_OPS_TEST_SECRET", WORD)
    assert secret.reveal() == WORD
    assert secret.variable == "RIOT_OPS_TEST_SECRET"
    assert WORD not in repr(secret)


def test_json_and_identity_contain_only_the_variable(registered):
    named, given = Login(password=Secret.env("BROKER")), Login(password=Secret(WORD))
    assert named.to_dict() == {"task": "login", "user": "u", "password": {"env": "BROKER"}}
    assert given.to_dict() == {"task": "login", "user": "u"}
    assert Task.from_dict(json.loads(json.dumps(named.to_dict()))) == named
    assert Task.from_dict(Login().to_dict()) == Login()
    assert task_identity(KeyedLogin(password=Secret("a"))) == task_identity(KeyedLogin(password=Secret("b")))
    assert task_identity(KeyedLogin(password=Secret.env("A")))["parameters"]["password"] == {"env": "A"}


@pytest.mark.parametrize("wrong", [WORD, WORD.encode(), {"password": WORD}])
def test_plain_text_is_refused_without_showing_it(registered, wrong):
    for attempt in (
        lambda: Login(password=wrong),
        lambda: Task.from_dict({"task": "login", "password": wrong}),
        lambda: check_secret("MQTTSource", "password", wrong),
    ):
        with pytest.raises(ConfigError, match="password") as caught:
            attempt()
        assert "s3cr3t" not in str(caught.value)


def test_invalid_secrets_are_refused():
    for value in ("", None, 5):
        with pytest.raises(ConfigError, match="not empty"):
            Secret(value)
    for name in ("", "A B", "1A", "pass-word", 5, None):
        with pytest.raises(ConfigError, match="name of an environment variable"):
            Secret.env(name)
    with pytest.raises(ConfigError, match="user") as caught:
        Login(user=Secret(WORD))
    assert WORD not in str(caught.value)
