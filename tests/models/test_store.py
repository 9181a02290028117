"""Model stores: names, order, atomic writes, and files that are not models."""

from __future__ import annotations

import os
import threading

import pytest

from riot_ops import ConfigError, ModelError
from riot_ops.core.errors import ConnectorError, RecordError
from riot_ops.models import LinearModel, ModelName, ModelStore, TreeModel, check_store, file_model, stored_model
from tests.models.samples import linear, stump


@pytest.fixture
def store(tmp_path):
    return ModelStore.open(tmp_path / "models")


def test_saved_models_are_loaded_by_name(store):
    name = store.save(linear(end_ms=1422749800000), "CITY")
    assert name == "CITY-MLR-1422749800000.model"
    assert store.load(name) == linear(end_ms=1422749800000)
    tree = store.save(stump(end_ms=5), "TAXI~ü")
    assert isinstance(store.load(tree), TreeModel)


def test_name_has_data_set_kind_and_end():
    name = ModelName.parse("CITY-DTC--5.model")
    assert (name.dataset, name.kind, name.end_ms) == ("CITY", "DTC", -5)
    assert str(name).split("-")[1] == "DTC"


def test_names_are_listed_newest_first(store, tmp_path):
    assert store.names() == [] and store.newest() is None
    for end, dataset in ((9, "CITY"), (10, "CITY"), (100, "TAXI"), (-3, "CITY")):
        store.save(linear(end_ms=end, start_ms=-3), dataset)
    store.save(stump(end_ms=50), "CITY")
    for other in ("notes.txt", "CITY-MLR-x.model", "CITY-MLR-1.model.tmp", ".CITY-MLR-1.model"):
        (tmp_path / "models" / other).write_text("no model")
    assert store.names("MLR") == [
        f"{d}-MLR-{e}.model" for d, e in (("TAXI", 100), ("CITY", 10), ("CITY", 9), ("CITY", -3))
    ]
    assert store.newest("MLR", "CITY") == "CITY-MLR-10.model"
    assert store.newest("DTC") == "CITY-DTC-50.model"
    assert store.newest("SVM") is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "model",
        "../CITY-MLR-1.model",
        "a/CITY-MLR-1.model",
        "..-MLR-1.model",
        "CITY-MLR-1.model\n",
        "CITY-MLR-1.MODEL",
        "CITY-mlr-1.model",
        "CITY-MLR-1.5.model",
        "-MLR-1.model",
        "C:\\x-MLR-1.model",
        "CITY-MLR-" + "9" * 30 + ".model",
    ],
)
def test_invalid_names_are_refused(store, name):
    with pytest.raises(ModelError, match="not the name of a model"):
        store.load(name)
    with pytest.raises(ModelError, match="not the name of a model"):
        store.write(name, linear())


def test_stored_models_are_never_overwritten(store):
    store.save(linear(), "CITY")
    store.save(linear(), "CITY")  # the same content again, as after a replay
    with pytest.raises(ModelError, match="never overwritten"):
        store.save(linear(intercept=2.0), "CITY")
    assert store.load("CITY-MLR-0.model") == linear()


def test_missing_and_damaged_files_are_refused(store, tmp_path):
    with pytest.raises(ModelError, match=r"CITY-MLR-1\.model cannot be read: .* has no blob"):
        store.load("CITY-MLR-1.model")
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "CITY-MLR-1.model").write_bytes(linear().to_bytes()[:-2])
    with pytest.raises(ModelError, match=r"CITY-MLR-1\.model is damaged"):
        store.load("CITY-MLR-1.model")
    (folder / "CITY-DTC-1.model").write_bytes(linear().to_bytes())
    with pytest.raises(ModelError, match="is of kind MLR"):
        store.load("CITY-DTC-1.model")
    (folder / "CITY-DTC-2.model").mkdir()
    with pytest.raises(ModelError, match="has no blob"):
        store.load("CITY-DTC-2.model")


def test_oversized_file_of_a_store_is_not_read(store, tmp_path):
    store.save(linear(), "CITY")
    os.truncate(tmp_path / "models" / "CITY-MLR-0.model", 2**40)  # sparse
    with pytest.raises(ModelError, match="has 1099511627776 bytes, allowed are"):
        store.load("CITY-MLR-0.model")


def test_concurrent_readers_see_complete_files_only(store):
    names = [f"CITY-MLR-{i}.model" for i in range(60)]
    done = threading.Event()
    seen, problems = [], []

    def read():
        while not done.is_set() or len(seen) < len(names):
            for name in store.names():
                if name not in seen:
                    try:
                        store.load(name)
                    except ModelError as error:
                        problems.append(error)
                    seen.append(name)

    reader = threading.Thread(target=read)
    reader.start()
    for i, name in enumerate(names):
        store.write(name, linear(inputs=tuple(f"x{j}" for j in range(500)), coefficients=(float(i),) * 500))
    done.set()
    reader.join(30)
    assert not reader.is_alive() and not problems


def test_unreachable_store_is_a_connector_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConnectorError, match="cannot be created"):
        ModelStore.open(tmp_path / "file").save(linear(), "CITY")


def test_check_store_rejects_urls_with_secrets(tmp_path):
    with pytest.raises(ConfigError, match="got ''"):
        check_store("")
    for url in ("ftp://me:pa55@host/models", "azure-blob://box?sig=pa55"):
        with pytest.raises(ConfigError) as caught:
            check_store(url)
        assert "pa55" not in str(caught.value)
    check_store("azure-blob://models")


def test_store_over_any_model_files():
    class Memory(dict):
        def list(self, prefix=""):
            return [name for name in self if name.startswith(prefix)]

        def read(self, name, max_bytes=None):
            if name not in self:
                raise RecordError(name, reason="not_found")
            return self[name]

        def write(self, name, data, *, overwrite=True):
            self[name] = data

    store = ModelStore(Memory())
    name = store.save(linear(end_ms=4), "GRID")
    assert store.load(store.newest()) == linear(end_ms=4)
    with pytest.raises(ModelError, match="cannot be read"):
        store.load("GRID-MLR-5.model")
    assert store.names() == [name]


def test_models_are_cached_per_process(store, tmp_path):
    name = store.save(linear(), "CITY")
    first = stored_model(str(tmp_path / "models"), name)
    assert stored_model(str(tmp_path / "models"), name) is first
    path = tmp_path / "any name"
    path.write_bytes(linear().to_bytes())
    assert file_model(str(path)) is file_model(str(path))
    path.write_bytes(linear(intercept=123.0).to_bytes())
    changed = file_model(str(path))
    assert isinstance(changed, LinearModel) and changed.intercept == 123.0
    with pytest.raises(ModelError, match="cannot be read"):
        file_model(str(tmp_path / "none"))
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        file_model(str(tmp_path))


def test_oversized_file_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 64 * 2**20)
    with pytest.raises(ModelError, match="damaged"):
        file_model(str(path))
    os.truncate(path, 64 * 2**20 + 1)
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(ModelError, match="has 67108865 bytes, more than the allowed 67108864"):
        file_model(str(path))
