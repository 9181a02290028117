# %% [markdown]
# # Load prediction for a smart grid
#
# How much power will a house draw in an hour? The load now is a poor guess in
# the morning and in the evening, when it changes fast; the same time of earlier
# days is a better one once there are earlier days. *Smart grid*, an application
# of the benchmark DSPBench, takes the middle of both. It was the task of the
# Grand Challenge of the conference DEBS in 2014.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import riot_ops as ro

# %% [markdown]
# ## The readings
#
# Two houses with three plugs each report every ten minutes for six days. A line
# is `id,timestamp,value,property,plug,household,house`: property 1 says that
# the value is a load in watts. With a file of your own meters in this form you
# go on from here.

# %%
random = np.random.default_rng(4)
begin = 1_714_521_600  # 1 May 2024, 0:00 UTC, in seconds


def usual_load(second, house):
    """Watts of a house: a peak in the morning and one in the evening."""
    hour = second / 3_600 % 24 - 0.5 * house
    morning = 400 * np.exp(-(((hour - 7.5) / 1.5) ** 2))
    evening = 900 * np.exp(-(((hour - 19) / 2) ** 2))
    return 150 + morning + evening


with open("loads.csv", "w") as file:
    number = 0
    for second in range(0, 6 * 86_400, 600):
        for house in (0, 1):
            for plug in range(3):
                watts = usual_load(second, house) / 3 * random.normal(1, 0.15)
                line = number, begin + second, f"{watts:.1f}", 1, plug, 0, house
                print(*line, sep=",", file=file)
                number += 1

with open("loads.csv") as lines:
    print(*[next(lines) for _ in range(3)], sep="")

# %% [markdown]
# ## The dataflow
#
# A day is cut into **slices** of `length`. At the end of each slice there is a
# prediction for the slice that begins an hour later: halfway between the mean
# of the slice that has just ended and the median of the slice to come over the
# earlier days, up to `history` of them. Another branch of the same application
# reports houses in which many plugs draw more than usual.

# %%
flow = ro.dataflows.smart_grid(length="30min", every="30min", history=7)
result = flow.run("loads.csv")
pd.Series(result.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# ## The predictions
#
# There are predictions for each plug, and for each house as a whole: those have
# no plug. `timestamp` is the time that is predicted, `load` the mean of the
# slice before the prediction was made. On the first day there is no history,
# and the prediction is the load of now.

# %%
predictions = result["predictions"].to_pandas()
house = predictions[predictions["plug_id"].isna()].query("house_id == 0").copy()
columns = ["event_time", "timestamp", "load", "predicted_load"]
house[columns].iloc[[15, 15 + 48, 15 + 5 * 48]].round(1)

# %% [markdown]
# ## Is it better than the load of now?
#
# For each time that was predicted, the load that came then is in the record of
# a later slice. The mean error by day, in watts:

# %%
house["slice"] = house["event_time"].dt.ceil("30min") - pd.Timedelta("30min")
came = house.set_index("slice")["load"]
house["came"] = house["timestamp"].map(came)
house = house.dropna(subset="came")
error = house[["predicted_load", "load"]].sub(house["came"], axis=0).abs()
error.columns = ["predicted", "the load of now"]
error.groupby(house["timestamp"].dt.date.rename("day")).mean().round()

# %% [markdown]
# ## The picture

# %%
last = house[house["timestamp"] >= house["timestamp"].max() - pd.Timedelta("48h")]
figure, axes = plt.subplots()
for field, style, label in (
    ("came", {"color": "tab:gray", "linewidth": 2}, "load that came"),
    ("load", {"color": "tab:red", "linestyle": ":"}, "load when it was predicted"),
    ("predicted_load", {"color": "tab:blue"}, "predicted"),
):
    axes.plot(last["timestamp"], last[field], **style, label=label)
axes.set_title("Two days of a house: the earlier days take half of the delay away")
axes.set_xlabel("time (UTC)")
axes.set_ylabel("load (W)")
axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
plt.show()

# %% [markdown]
# ## Read on
#
# - [Smart grid](../dataflows/smart_grid.md): the steps, all parameters, and
#   what differs from the original.
# - [Train a model, serve it, and swap it](04_train_and_swap_a_model.md):
#   predictions from a model that is learnt.
# - [Windows and time](../howto/windows.md): slices, windows, late records.
