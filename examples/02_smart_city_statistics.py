# %% [markdown]
# # Statistics of a smart city, on one machine and on Spark
#
# What do twenty sensors of a city measure, what will they measure next, and
# which of their readings are wrong? This is STATS, one of the four applications
# of the benchmark RIoTBench, built from its operators: averages, smoothing,
# prediction and a count of distinct values. The same dataflow then runs on
# Spark, with the same results. That part needs Java (17 or 21), the rest does
# not.

# %%
from datetime import timedelta

import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro
from riot_ops import tasks as t

# %% [markdown]
# ## The messages
#
# The library generates the stream: twenty sensors send a **message** every ten
# seconds, here 20,000 in all. A message is SenML, the standard of the IETF for
# sensor measurements in JSON: a list of readings, each with a name `n`, a unit
# `u` and a value `v`. As in the recorded data, some values are missing or
# impossible.

# %%
city = ro.streams.city(sensors=20, messages=20_000, seed=7)
ro.streams.write(city, "city.txt")
with open("city.txt") as lines:
    print(next(lines))

# %% [markdown]
# ## The dataflow
#
# A dataflow is a graph of steps. `parse` makes a **record** of each reading in
# a message; `range` drops the impossible values. `key_by` says that each
# quantity of each sensor is a series of its own. Then the stream divides:
#
# - `avg` gives the mean of every ten readings;
# - `kalman` removes noise by a **Kalman filter**, which weighs each reading
#   against what was to be expected after the last one;
# - `slr` lays a line through the last ten smoothed values, a **regression**,
#   and continues it by ten;
# - `dac` estimates how many distinct values each quantity has had, in a few
#   kilobytes whatever the number.

# %%
flow = ro.Dataflow("stats")
parsed = flow.source("city").apply(t.ParseSenML(schema="city"), id="parse")
readings = parsed.apply(t.RangeFilter(bounds="city"), id="range")
series = readings.key_by("sensor_id", "obs_type")
avg = series.window(10).agg(mean=("value", "mean"), id="avg")
kalman = series.apply(t.KalmanFilter(), id="kalman")
slr = kalman.apply(t.SlidingRegression(window=10, horizon=10), id="slr")
dac = readings.key_by("obs_type").apply(t.DistinctCount(), id="dac")
flow.sink("out", parsed, readings, avg, kalman, slr, dac)
flow

# %%
result = flow.run(city)
pd.Series(result.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# ## The results
#
# Each stream that ends in the sink is a table. Here are the first means, and
# the count of distinct values after the last message:

# %%
columns = ["window_start", "window_end", "sensor_id", "obs_type", "mean"]
result["avg"].to_pandas()[columns].round(2).head(3)

# %%
last = result["dac"].to_pandas().groupby("obs_type")["value"].last()
last.round(1).rename("distinct values")

# %% [markdown]
# The range filter is worth its place: a single impossible reading moves a
# smoothed series far away, for minutes. `ro.apply` runs one task over a table,
# here the Kalman filter over all readings. The largest values of each quantity:

# %%
smooth = t.KalmanFilter(by=("sensor_id", "obs_type"))
unchecked = ro.apply(smooth, result["parse"], on_error="drop")
streams = {"all": result["parse"], "valid": result["range"]}
streams |= {"smoothed, of all": unchecked, "smoothed, of valid": result["kalman"]}
largest = pd.DataFrame()
for name, table in streams.items():
    largest[name] = table.to_pandas().groupby("obs_type")["value"].max().round(1)
largest

# %% [markdown]
# ## The same on Spark
#
# The same graph becomes one query of Spark Structured Streaming. `max_records`
# cuts the stream into **micro-batches**, the pieces in which Spark processes a
# stream; the results do not depend on the cut. They are the same, record for
# record:

# %%
from riot_ops.spark import session

spark = session(cores=2)
query = flow.start(spark, source=city, max_records=10_000)
query.wait()
order = [("seq", "ascending"), ("obs_type", "ascending")]
for stream in ("avg", "kalman", "slr", "dac"):
    same = query[stream].sort_by(order).equals(result[stream].sort_by(order))
    print(f"{stream}: {'the same' if same else 'different'} on Spark")
spark.stop()

# %% [markdown]
# ## The picture
#
# One quantity of one sensor for 25 minutes. Each short line is a prediction as
# it was made at its first point.

# %%
sensor, quantity = result["range"]["sensor_id"][0].as_py(), "humidity"
begin = pd.Timestamp("2015-01-27 02:00", tz="UTC")


def excerpt(stream):
    frame = result[stream].to_pandas()
    frame = frame[(frame["sensor_id"] == sensor) & (frame["obs_type"] == quantity)]
    return frame[frame["event_time"].between(begin, begin + timedelta(minutes=25))]


kept, smooth, ahead = (excerpt(stream) for stream in ("range", "kalman", "slr"))
figure, axes = plt.subplots()
gray = {"color": "tab:gray", "alpha": 0.6}
axes.plot(kept["event_time"], kept["value"], ".", **gray, label="readings")
axes.plot(smooth["event_time"], smooth["value"], label="smoothed")
for row in ahead.iloc[::12].itertuples():
    times = [row.event_time + timedelta(seconds=10 * i) for i in range(10)]
    axes.plot(times, row.predictions, color="tab:orange", linewidth=2)
axes.plot([], [], color="tab:orange", linewidth=2, label="predicted")
axes.set_title("Relative humidity at one sensor, smoothed and predicted")
axes.set_xlabel("time (UTC)")
axes.set_ylabel("relative humidity (%)")
axes.legend()
plt.show()

# %% [markdown]
# ## Read on
#
# - [STATS](../dataflows/stats.md): the ready-made application,
#   `ro.dataflows.stats()`, with its parameters and the figures of the paper.
# - [Your own Spark pipeline](../howto/spark.md): the same tasks within
#   DataFrames of your own.
# - [Windows and time](../howto/windows.md): means by the clock rather than by
#   the number of readings.
