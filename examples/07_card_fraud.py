# %% [markdown]
# # Stolen cards
#
# Which cards are used by a person who does not own them? A thief buys other
# things in another rhythm. A dataflow watches the purchases of each customer,
# gives each sequence a score, and names the customers whom the bank should
# call: those with five alerts, so that one unusual evening is not enough.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro

# %% [markdown]
# ## The purchases
#
# 4,000 purchases of 120 customers, generated. A line has the customer, the
# transaction, and the *state* of the purchase in three letters: its amount
# (low, medium, high: `L`, `M`, `H`), whether something expensive is in it (`N`
# no, `H` yes), and the time since the last one (`L` large, `N` normal, `S`
# small).

# %%
cards = ro.streams.generate("cards", messages=4_000, customers=120, seed=2)
ro.streams.write(cards, "purchases.txt")
with open("purchases.txt") as lines:
    print(*[next(lines) for _ in range(3)], sep="")

# %% [markdown]
# ## The dataflow
#
# `fraud_detection` is an application of the benchmark DSPBench. A **Markov
# model** says how likely each state is after each other one; a customer's last
# five purchases have a high score if they are unlikely together. What exceeds
# the `threshold` is an *outlier*.
#
# An application is a dataflow like any other, and its streams have the same
# verbs. So two steps are added: the number of outliers of each customer so far,
# and a filter for the fifth.

# %%
flow = ro.dataflows.fraud_detection(window=5, threshold=0.96)
outliers = flow.stream("outliers").key_by("entity_id")
calls = outliers.agg(alerts="count", id="alerts").filter("alerts == 5", id="calls")
calls.to("phone")
flow

# %%
result = flow.run("purchases.txt")
pd.Series(result.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# The states of an outlier show why it is one: high amounts, expensive things,
# one soon after the other.

# %%
columns = ["seq", "entity_id", "score", "states"]
result["outliers"].to_pandas()[columns].round(3).head(4)

# %% [markdown]
# ## Whom to call
#
# Each of these customers is named once, at the fifth alert; `seq` is the number
# of the purchase.

# %%
called = result["calls"].to_pandas()[["seq", "entity_id", "score"]].round(3)
called

# %% [markdown]
# ## The picture
#
# A threshold of 0 gives the score of each purchase, for a look at the whole.

# %%
everything = ro.dataflows.fraud_detection(window=5, threshold=0.0)
scores = everything.run("purchases.txt")["outliers"].to_pandas()
stolen = scores["entity_id"].isin(called["entity_id"])
figure, axes = plt.subplots()
pale = {"color": "tab:gray", "alpha": 0.35, "rasterized": True}
for label, rows, style in (
    ("other customers", scores[~stolen], pale),
    ("customers to call", scores[stolen], {"color": "tab:red"}),
):
    axes.plot(rows["seq"], rows["score"], ".", markersize=4, label=label, **style)
axes.axhline(0.96, color="tab:blue", linestyle="--", label="threshold")
axes.set_title("Purchases with stolen cards stand apart")
axes.set_xlabel("number of the purchase")
axes.set_ylabel("score of the last five purchases")
axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16), markerscale=3)
plt.show()

# %% [markdown]
# ## Read on
#
# - [Fraud detection](../dataflows/fraud_detection.md): the steps, all
#   parameters, and a model of your own purchases.
# - [Compose a dataflow](../howto/streams.md): the verbs of streams.
# - [Models](../howto/models.md): other models, and how to replace one while the
#   stream runs.
