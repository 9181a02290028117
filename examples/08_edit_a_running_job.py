# %% [markdown]
# # Edit a job while it runs
#
# Three people want something of the same stream, come and go as they like, and
# pay only once for what they have in common. Can one start, change and remove a
# dataflow without stopping the others? A **reuse manager** runs all their
# dataflows as one job: it runs equal steps once, and edits the job while
# records flow.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import LocalBackend, ReuseManager

# %% [markdown]
# ## The dataflows
#
# All three parse the messages of urban sensors and drop impossible values. Then
# Ada smooths each series, Bob takes the mean of every five values, and Cyd
# continues Ada's smoothed series by a trend.

# %%
city = ro.streams.city(sensors=90, messages=12_000, seed=3)


def dataflow(name, *tasks):
    flow = ro.Dataflow(name)
    parsed = flow.source("city").apply(t.ParseSenML(schema="city"), id="parse")
    readings = parsed.apply(t.RangeFilter(bounds="city"), id="range")
    stream = readings.key_by("sensor_id", "obs_type")
    for task in tasks:
        stream = stream.apply(task)
    return stream.to("out")


flows = {
    "Ada": dataflow("Ada", t.KalmanFilter()),
    "Bob": dataflow("Bob", t.MovingAverage(window=5)),
    "Cyd": dataflow("Cyd", t.KalmanFilter(), t.SlidingRegression()),
}
flows["Cyd"]

# %% [markdown]
# ## Ada comes
#
# The job is empty, so all of her steps are new. A **back end** processes the
# records: here batches of a thousand, one at each call of `turn`, so that this
# page is the same each time; `backend.start()` would do it in a thread of its
# own.

# %%
backend = LocalBackend(batch_size=1_000)
manager = ReuseManager(backend)
sinks = {name: ro.MemorySink() for name in flows}
work = []  # records that the steps of the job have processed, after each turn


def turns(n):
    for _ in range(n):
        backend.turn()
        work.append(manager.usage())


print(manager.submit(flows["Ada"], city, sinks["Ada"], owner="Ada"))
turns(3)

# %% [markdown]
# ## Bob comes
#
# `explain` says what he would share, and changes nothing. Steps are equal if
# they are the same task with the same parameters over the same inputs, whatever
# their names are.

# %%
print(manager.explain(flows["Bob"], city))

# %%
report = manager.submit(flows["Bob"], city, sinks["Bob"], owner="Bob")
came = report.first["city"]
print("Bob gets the stream from message", came, "on; for Ada nothing changes")
turns(3)

# %% [markdown]
# ## Cyd comes
#
# She shares Ada's filter too. That has seen earlier messages: the report calls
# it *warm*. The diagram shows who uses what.

# %%
report = manager.submit(flows["Cyd"], city, sinks["Cyd"], owner="Cyd")
print("warm:", *report.warm)
turns(3)
manager

# %% [markdown]
# ## Ada goes
#
# Of her steps only the end stops, since Cyd needs the rest. All that has been
# done was done for a person: each owner has a bill.

# %%
gone = manager.remove("Ada")
print("stopped:", *gone.stopped)
print("kept:", *gone.kept)
turns(3)

# %%
usage = manager.usage()
bill = {owner: round(one.records / 1_000, 1) for owner, one in usage.owners.items()}
pd.Series(bill, name="thousand records").rename_axis("owner")

# %% [markdown]
# ## Nobody's results depend on the others
#
# Bob alone, over the messages since he came, gets the same values.

# %%
manager.close()
ro.streams.write(city, "city.txt")
with open("city.txt") as lines, open("later.txt", "w") as later:
    later.writelines(list(lines)[came:])
alone = flows["Bob"].run("later.txt")["moving_average"]
shared = sinks["Bob"].table("moving_average")
same = shared["value"].equals(alone["value"])
print(f"Bob's means: {shared.num_rows} · the same as alone: {same}")

# %% [markdown]
# ## The picture
#
# What each thousand messages cost: the records that the steps of the job have
# processed, and those that separate jobs would have processed besides.

# %%
spent, saved, seen = [], [], {}
for usage in work:
    new = {step: step.records - seen.get(step.step, 0) for step in usage.steps}
    seen = {step.step: step.records for step in usage.steps}
    spent.append(sum(new.values()))
    saved.append(sum((len(step.dataflows) - 1) * n for step, n in new.items()))

figure, axes = plt.subplots()
places = range(1, len(work) + 1)
axes.bar(places, spent, label="processed by the job")
axes.bar(places, saved, bottom=spent, hatch="//", alpha=0.45, label="saved by sharing")
for place, event in ((1, "Ada"), (4, "+ Bob"), (7, "+ Cyd"), (10, "− Ada")):
    top = spent[place - 1] + saved[place - 1]
    axes.text(place - 0.4, top + 800, event, fontweight="bold")
axes.set_xticks(places)
share = sum(saved) / (sum(spent) + sum(saved))
axes.set_title(f"Sharing saves {share:.0%} of the work")
axes.set_xlabel("messages so far (thousands)")
axes.set_ylabel("records, all steps")
axes.legend(loc="upper left")
plt.show()

# %% [markdown]
# ## Read on
#
# - [Edit a running job](../howto/reuse.md): what is guaranteed, restarts,
#   pauses, several dataflows at once, and the same on Spark.
# - [Change a running pipeline](../howto/change.md): a single dataflow that is
#   stopped and continues in another form.
# - [The paper](../papers/reuse.md) that the manager follows, and its
#   experiments.
