# %% [markdown]
# # From your own CSV file to alerts
#
# Which freezer gets too warm, and since when? A file has the readings of three freezers, as a data logger writes them: every
# minute a line, some of them wrong. A dataflow reads the file, drops the readings that no freezer can have, and reports each ten
# minutes in which a freezer was too warm. With a file of your own you change the names of the columns.

# %%
from datetime import datetime

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import riot_ops as ro

# %% [markdown]
# ## The file
#
# A morning of three freezers. The compressor of `north` fails at 9:20, and somebody leaves the door of `south` open for a while. The sensor
# of `east` has a loose contact: it then sends −127, as many sensors do, or no number at all.

# %%
random = np.random.default_rng(7)
minutes = np.arange(360)
north, south, east = (-20 + 1.2 * np.sin(minutes / 9 + i) + random.normal(0, 0.3, 360) for i in range(3))
north[200:] += 14 * (1 - np.exp(-(minutes[200:] - 200) / 60))
south[90:125] += np.interp(minutes[90:125], [90, 105, 125], [0, 9, 0])
east[random.choice(360, 25, replace=False)] = -127.0
freezers = {"north": north, "south": south, "east": east}

with open("freezers.csv", "w") as file:
    print("time;freezer;celsius", file=file)
    for minute in minutes:
        for name, values in freezers.items():
            celsius = "error" if name == "east" and minute % 90 == 89 else f"{values[minute]:.1f}"
            print(f"2024-05-03 {6 + minute // 60:02}:{minute % 60:02};{name};{celsius}", file=file)

pd.read_csv("freezers.csv", sep=";").head(4)

# %% [markdown]
# ## The dataflow
#
# A **dataflow** is a graph of steps through which **records** flow one after the other; a record is a line of the file. The source declares which
# fields a record has, with their types. `ro.read` says where in the file they are: `time` names the column with the time of a record, its
# *event time*.
#
# `key_by` says whose records belong together: each freezer has windows of its own. A **window** of ten minutes has one result, when the ten
# minutes are over; over means that a reading of a later time has come, and no clock on the wall is asked. So a file gives the same alerts as the
# sensors themselves.

# %%
flow = ro.Dataflow("freezers")
readings = flow.source("readings", {"event_time": datetime, "freezer": str, "celsius": float})
plausible = readings.filter("celsius > -60", id="plausible")
means = plausible.key_by("freezer").window("10min").agg(celsius=("celsius", "mean"), n="count", id="means")
alerts = means.filter("celsius > -15", id="alerts")
flow.sink("out", readings, plausible, means, alerts)

# %% [markdown]
# ## The run
#
# `flow.run` runs it in this process. Its result has a table for each stream that ends in the sink, by the name of the step.

# %%
result = flow.run(ro.read("freezers.csv", delimiter=";", time="time"))
pd.Series(result.summary.rows, name="records").rename_axis("stream").sort_index()

# %% [markdown]
# A record that cannot be read stops nothing: the step **rejects** it, and it goes to the stream `errors` with the reason.

# %%
result.errors.to_pandas()[["seq", "task", "reason", "message"]]

# %% [markdown]
# The readings of −127 are no such case: they are numbers, so the filter has to know better. The rest becomes means of ten
# minutes, and the second filter leaves what is worth a call.

# %%
result["alerts"].to_pandas()[["window_start", "window_end", "freezer", "celsius", "n"]].round(1).head(8)

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots(3, 1, figsize=(9, 5.5), sharex=True, sharey=True)
received, kept, found = (result[stream].to_pandas() for stream in ("readings", "plausible", "alerts"))
for axis, name in zip(axes, freezers, strict=True):
    own, dropped = (frame[frame["freezer"] == name] for frame in (kept, received[received["celsius"] <= -60]))
    axis.plot(own["event_time"], own["celsius"], label=name)
    axis.plot(
        dropped["event_time"],
        np.full(len(dropped), -22.5),
        "x",
        color="tab:red",
        label="_" if dropped.empty else "dropped",
    )
    axis.axhline(-15, color="tab:gray", linestyle=":", label="limit, −15 °C")
    spans = found[found["freezer"] == name]
    for start, end in zip(spans["window_start"], spans["window_end"], strict=True):
        axis.axvspan(start, end, color="tab:red", alpha=0.25, linewidth=0)
    axis.fill_between([], [], color="tab:red", alpha=0.25, label="_" if spans.empty else "alert")
    axis.set_ylabel("°C")
    axis.legend(loc="upper left", ncols=4)
axes[0].set_title("Two freezers got too warm; the wrong readings of the third raise no alert")
axes[2].set_xlabel("time (UTC)")
plt.show()

# %% [markdown]
# ## Read on
#
# - [Data in](../howto/data_in.md): files as other programs write them, frames, generators, brokers.
# - [Windows and time](../howto/windows.md): windows that overlap, late records, wrong clocks.
# - [Data out](../howto/data_out.md): alerts to a file, a database, a web hook.
