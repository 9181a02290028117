# %% [markdown]
# # From your own CSV file to alerts
#
# Which freezer gets too warm, and since when? A file has the readings of three
# freezers, as a data logger writes them: every minute a line, some of them
# wrong. A dataflow reads the file, drops the readings that no freezer can have,
# and reports each ten minutes in which a freezer was too warm. With a file of
# your own you change the names of the columns.

# %%
from datetime import datetime

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import riot_ops as ro

# %% [markdown]
# ## The file
#
# A morning of three freezers. The compressor of `north` fails at 9:20, and
# a person leaves the door of `south` open for a while. The sensor of `east` has
# a loose contact: it then sends −127, as many sensors do, or no number at all.

# %%
random = np.random.default_rng(7)
minutes = np.arange(360)
north, south, east = (
    -20 + 1.2 * np.sin(minutes / 9 + i) + random.normal(0, 0.3, 360) for i in range(3)
)
north[200:] += 14 * (1 - np.exp(-(minutes[200:] - 200) / 60))
south[90:125] += np.interp(minutes[90:125], [90, 105, 125], [0, 9, 0])
east[random.choice(360, 25, replace=False)] = -127.0
freezers = {"north": north, "south": south, "east": east}

with open("freezers.csv", "w") as file:
    print("time;freezer;celsius", file=file)
    for minute in minutes:
        for name, values in freezers.items():
            silent = name == "east" and minute % 90 == 89
            celsius = "error" if silent else f"{values[minute]:.1f}"
            at = f"2024-05-03 {6 + minute // 60:02}:{minute % 60:02}"
            print(at, name, celsius, sep=";", file=file)

pd.read_csv("freezers.csv", sep=";").head(4)

# %% [markdown]
# ## The dataflow
#
# A **dataflow** is a graph of steps through which **records** flow one after
# the other; a record is a line of the file. The source declares which fields a
# record has, with their types. `ro.read` says where in the file they are:
# `time` names the column with the time of a record, its *event time*.
#
# `key_by` says whose records belong together: each freezer has windows of its
# own. A **window** of ten minutes has one result, when the ten minutes are
# over; over means that a reading of a later time has come, and no clock on the
# wall is asked. So a file gives the same alerts as the sensors themselves.

# %%
flow = ro.Dataflow("freezers")
fields = {"event_time": datetime, "freezer": str, "celsius": float}
readings = flow.source("readings", fields)
plausible = readings.filter("celsius > -60", id="plausible")
windows = plausible.key_by("freezer").window("10min")
means = windows.agg(celsius=("celsius", "mean"), n="count", id="means")
alerts = means.filter("celsius > -15", id="alerts")
flow.sink("out", readings, plausible, means, alerts)

# %% [markdown]
# Before it runs over the whole file, `ro.show` says what each step makes of a few
# records, here of some that are chosen for it. A record that cannot be read stops
# nothing: the step **rejects** it. A reading of −127 is no such case, as it is a
# number; so the filter has to know better.

# %%
sample = [
    {"event_time": "2024-05-03 06:00", "freezer": "east", "celsius": "-19.1"},
    {"event_time": "2024-05-03 06:01", "freezer": "east", "celsius": "-127.0"},
    {"event_time": "2024-05-03 06:02", "freezer": "east", "celsius": "error"},
    {"event_time": "2024-05-03 06:10", "freezer": "east", "celsius": "-11.5"},
]
print(ro.show(flow, sample))

# %% [markdown]
# ## The run
#
# `flow.run` runs it in this process. Its result has a table for each stream
# that ends in the sink, by the name of the step.

# %%
result = flow.run(ro.read("freezers.csv", delimiter=";", time="time"))
pd.Series(result.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# The stream `errors` has the rejected records, with the reason:

# %%
result.errors.to_pandas()[["seq", "task", "reason", "message"]]

# %% [markdown]
# The rest became means of ten minutes, and the second filter left what is worth a
# call:

# %%
columns = ["window_start", "window_end", "freezer", "celsius", "n"]
result["alerts"].to_pandas()[columns].round(1).head(8)

# %% [markdown]
# For a first look, a stream draws itself, with a line for each key:

# %%
result.plot("means", "celsius", y_label="mean of 10 min (°C)")

# %% [markdown]
# ## The picture

# %%
received = result["readings"].to_pandas()
found = result["alerts"].to_pandas()
figure, axes = plt.subplots(3, 1, figsize=(9, 5.5), sharex=True, sharey=True)
for axis, (name, own) in zip(
    axes, received.groupby("freezer", sort=False), strict=True
):
    kept = own["celsius"] > -60
    axis.plot(own["event_time"][kept], own["celsius"][kept], label=name)
    axis.axhline(-15, color="tab:gray", linestyle=":", label="limit, −15 °C")
    for alert in found[found["freezer"] == name].itertuples():
        span = alert.window_start, alert.window_end
        axis.axvspan(*span, color="tab:red", alpha=0.25, linewidth=0)
    for time in own["event_time"][~kept]:
        axis.plot(time, -22.5, "x", color="tab:red")
    axis.set_ylabel("°C")
axes[0].axvspan(*span, 0, 0, color="tab:red", alpha=0.25, label="alert")
axes[2].plot(time, -22.5, "x", color="tab:red", label="reading of −127, dropped")
for axis in axes:
    axis.legend(loc="upper left", ncols=4)
axes[0].set_title("Two freezers got too warm; the wrong readings raise no alert")
axes[2].set_xlabel("time (UTC)")
plt.show()

# %% [markdown]
# ## Read on
#
# - [Data in](../howto/data_in.md): files as other programs write them, frames,
#   generators, brokers.
# - [Windows and time](../howto/windows.md): windows that overlap, late records,
#   wrong clocks.
# - [Data out](../howto/data_out.md): alerts to a file, a database, a web hook.
