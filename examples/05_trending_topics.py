# %% [markdown]
# # Trending topics
#
# What do people talk about right now, and what did they talk about a minute
# ago? A dataflow counts the hash tags of short messages over the last ten
# seconds, and ranks them every two seconds. It is the application *trending
# topics* of the benchmark DSPBench, with one call.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro

# %% [markdown]
# ## The messages
#
# Two minutes of generated messages, five hundred a second, as lines of JSON.
# Which topic comes first changes every forty seconds. Some lines
# cannot be read, and some messages are older than those before them, as on any
# network.

# %%
tweets = ro.streams.generate("tweets", messages=60_000, rate=500.0, seed=11)
ro.streams.write(tweets, "tweets.txt")
with open("tweets.txt") as lines:
    print(next(lines))

# %% [markdown]
# ## The dataflow
#
# `window` is how far back a ranking looks, `every` how often there is one, and
# `k` how many topics it has. Both times are those of the messages, not of the
# clock on the wall, so a recorded file gives the same rankings as the live
# stream.
#
# A counter per topic keeps the last ten seconds in pieces of two. Four rankers
# share the topics among them, and a last one merges their rankings: so the work
# can be distributed over several workers.

# %%
flow = ro.dataflows.trending_topics(window="10s", every="2s", k=5, normalise=True)
flow

# %%
result = flow.run("tweets.txt")
pd.Series(result.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# Lines that could not be read are in the stream `errors`, each with the step
# that rejected it and the reason:

# %%
result.errors.to_pandas().groupby(["task", "reason"]).size().rename("records")

# %% [markdown]
# ## The rankings
#
# A ranking has a record for each of its places. Here are the ones after half a
# minute, after one and after one and a half:

# %%
rankings = result["rankings"].to_pandas()
seconds = (rankings["tick_time"] - rankings["tick_time"].min()).dt.total_seconds() + 2
table = rankings.assign(after=seconds)[seconds.isin([30, 60, 90])]
table["entry"] = table["topic"] + " (" + table["count"].astype(str) + ")"
table["after"] = table["after"].astype(int).astype(str) + " s"
table.pivot(index="after", columns="rank", values="entry").add_prefix("rank ")

# %% [markdown]
# ## The picture

# %%
leaders = rankings[rankings["rank"] == 1]["topic"].unique()
counts = rankings.pivot(index="tick_time", columns="topic", values="count")[leaders]
figure, axes = plt.subplots()
for topic, style in zip(leaders, ("-", "--", "-.", ":"), strict=False):
    axes.plot(counts.index, counts[topic], style, label=topic, linewidth=2)
axes.set_title("Each topic leads for forty seconds")
axes.set_xlabel("time (UTC)")
axes.set_ylabel("mentions in the last 10 s")
axes.legend(title="topic")
plt.show()

# %% [markdown]
# ## Read on
#
# - [Trending topics](../dataflows/trending_topics.md): the steps, all
#   parameters, and what differs from the original.
# - [Windows and time](../howto/windows.md): stream time, late records, wrong
#   clocks.
# - [Compose a dataflow](../howto/streams.md): build such an application from
#   its operators.
