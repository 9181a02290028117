# %% [markdown]
# # Train a model, serve it, and swap it without stopping
#
# How does a stream of predictions get a better model while it runs? A hundred
# households have smart meters, and a model says how much electricity they need
# at each hour. The first one has learnt from six hours and is put to work at
# once. Two days later a better one takes its place, while the stream goes on:
# no reading is lost, and each prediction says which model made it.

# %%
import queue
import time
from datetime import datetime, timedelta

import matplotlib.pyplot as plt

import riot_ops as ro
from riot_ops import tasks as t

# %% [markdown]
# ## The readings
#
# Four days of generated messages, one per meter and half hour. `ParseSenML`
# makes records of them (SenML is a standard for measurements in JSON). Readings
# that are missing or impossible are left out. A model cannot learn from a time
# as such: 23:59 and 0:01 are neighbours. So `Compute` adds the **features**
# that it learns from, waves with one and with two periods a day.

# %%
METERS, DAY = 100, 100 * 48
angle = "time_of_day(event_time) / duration('1h') * 0.2617993877991494"  # 0 to 2 π
waves = {
    f"{name}{n}": f"{name}({n} * ({angle}))" for n in (1, 2) for name in ("sin", "cos")
}
features = t.Compute(waves)

prepare = ro.Dataflow("prepare")
parse = t.ParseSenML(schema="grid", layout="wide")
parsed = prepare.source("grid").apply(parse, id="parse")
usable = parsed.filter("0 <= energyconsumed < 100", id="usable")
usable.apply(features, id="features").to("out")
messages = ro.streams.grid(meters=METERS, messages=4 * DAY, seed=7)
readings = prepare.run(messages)["features"]
readings.to_pandas().drop(columns="seq").round(2).head(3)

# %% [markdown]
# ## The first model
#
# `TrainLinearRegression` learns how the consumption depends on the waves
# (`alpha` keeps the weights small where there is little to learn from), and
# writes the model to a **store**, here a folder. A model is data (JSON), not a
# pickled object: any program can read it, and reading it executes nothing.

# %%
rows = readings.select(["event_time", "sensor_id", "energyconsumed"]).to_pylist()
begin = rows[0]["event_time"]


def count(hours):
    """The number of readings in the first hours."""
    return sum(row["event_time"] < begin + timedelta(hours=hours) for row in rows)


def learn(hours):
    """Learn from the first hours, and return the name of the model."""
    names = {"target": "energyconsumed", "dataset": "GRID", "store": "models"}
    train = t.TrainLinearRegression(
        inputs=tuple(waves), alpha=10.0, size=count(hours), **names
    )
    return ro.apply(train, readings.slice(0, count(hours)))["model"][0].as_py()


store = ro.models.ModelStore.open("models")
first = learn(hours=6)
model = store.load(first)
weights = zip(model.coefficients, model.inputs, strict=True)
terms = [f"{weight:+.1f} {name}" for weight, name in weights]
print(f"learnt from {model.rows} readings: {model.intercept:.1f}", *terms)

# %% [markdown]
# ## Serve it
#
# The dataflow has two sources: the readings, and the names of new models. Both
# are queues here, as a program has them that gets its data from somewhere else;
# a Kafka topic or an MQTT subscription would stand in the same place. The two
# `Project` steps give both streams the same fields. A record with a name in
# `update` replaces the model; any other one is predicted.

# %%
serve = ro.Dataflow("serve")
fields = {"event_time": datetime, "sensor_id": str, "energyconsumed": float}
meters = serve.source("meters", fields)
names = serve.source("names", {"event_time": datetime, "update": str})
columns = {"sensor_id": str, "energyconsumed": float, **dict.fromkeys(waves, float)}
ready = meters.apply(features, id="features")
live = ready.apply(t.Project(fields=tuple(columns), nulls={"update": str}), id="live")
news = names.apply(t.Project(fields=("update",), nulls=columns), id="news")
line = t.PredictLinearRegression(
    inputs=tuple(waves),
    store="models",
    model=first,
    updates="update",
    model_field="model",
)
serve.add(line, live, news, id="predict").to("out")

# %% [markdown]
# `launch` runs it in the background and returns at once. The first two days
# arrive and are predicted.

# %%
inbox, updates = queue.Queue(), queue.Queue()
half = count(hours=48)
for row in rows[:half]:
    inbox.put(row)

run = serve.launch({"meters": iter(inbox.get, None), "names": iter(updates.get, None)})


def wait_for(records):
    """Wait until the step that predicts has read so many records."""
    read = 0
    while run.active and read < records:
        time.sleep(0.01)
        read = run.status()["steps"].get("predict", {}).get("read", 0)


wait_for(half)
print("running:", run.active, "· predicted:", run.summary.rows["predict"], "of", half)

# %% [markdown]
# ## Swap it
#
# Two days are enough to see mornings and evenings. The new model is learnt,
# stored and named; the run hears of it like any other record, and does not
# stop.

# %%
second = learn(hours=48)
updates.put({"event_time": None, "update": second})
wait_for(half + 1)

for row in rows[half:]:
    inbox.put(row)
inbox.put(None)  # ends the queue, as iter(get, None) has it
updates.put(None)
run.wait()
predicted = run["predict"].to_pandas()
rejected = run["errors"].num_rows
print(f"readings: {len(rows)} · predicted: {len(predicted)} · rejected: {rejected}")

# %% [markdown]
# Each prediction names its model. The error is how far the mean of an hour is
# from the mean of its predictions, in kWh per half hour:

# %%
predicted["hour"] = predicted["event_time"].dt.floor("h")
columns = ["energyconsumed", "prediction"]
hourly = predicted.groupby(["model", "hour"])[columns].mean()
hourly["error"] = (hourly["energyconsumed"] - hourly["prediction"]).abs()
hourly.groupby("model", sort=False)["error"].agg(["mean", "max"]).round(1)

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots()
observed = predicted.groupby("hour")["energyconsumed"].mean()
axes.plot(observed.index, observed, color="tab:gray", label="observed")
for name, label in ((first, "first model"), (second, "second model")):
    axes.plot(hourly.loc[name].index, hourly.loc[name]["prediction"], label=label)
swap = begin + timedelta(hours=48)
axes.axvline(swap, color="tab:gray", linestyle=":", label="swap")
axes.set_ylim(0, 25)
axes.set_title("The predictions get better when the model is swapped")
axes.set_xlabel("time (UTC)")
axes.set_ylabel("kWh per half hour, mean of 100 meters")
axes.legend(ncols=4, loc="upper center")
plt.show()

# %% [markdown]
# ## Read on
#
# - [Models](../howto/models.md): trees, networks, estimators of scikit-learn,
#   stores in the cloud.
# - [TRAIN](../dataflows/train.md) and [PRED](../dataflows/pred.md): the same as
#   two applications that hear of each other by MQTT.
# - [Change a running pipeline](../howto/change.md): what a restart keeps when
#   the dataflow itself changes.
