"""The engines that a worker keeps."""

from riot_ops.spark import state_chain


def test_worker_keeps_engines_of_recent_queries(monkeypatch):
    monkeypatch.setattr(state_chain, "ENGINE_CACHE", type(state_chain.ENGINE_CACHE)())
    monkeypatch.setattr(state_chain, "CACHED_SECONDS", -1.0)
    first = state_chain.cached_engines("first")
    for i in range(3):
        state_chain.cached_engines(f"{i}")
    assert state_chain.cached_engines("first") is first
    state_chain.cached_engines("new")
    assert [*state_chain.ENGINE_CACHE] == ["1", "2", "first", "new"]
    monkeypatch.setattr(state_chain, "CACHED_SECONDS", 60.0)
    state_chain.cached_engines("other")
    assert len(state_chain.ENGINE_CACHE) == 5, "it has just run for all of them"
