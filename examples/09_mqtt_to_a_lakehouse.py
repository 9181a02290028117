# %% [markdown]
# # From MQTT to a lakehouse table
#
# How do the messages of sensors become a table that everybody can query, with
# no message lost and none twice, even if the program stops in between? Sensors
# publish to a **broker** by MQTT, the protocol of small devices. A dataflow
# subscribes, checks the readings and appends them to a **Delta table**: a
# folder of Parquet files with a log of its versions, which Spark, DuckDB,
# Polars and pandas read.
#
# It needs `pip install 'riot-ops[mqtt,delta]'` and no server: the broker is a
# folder. With a server, set its address in the environment, as in
# `BROKER=mqtt://localhost:1883`; nothing else changes.

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd
from deltalake import DeltaTable

import riot_ops as ro
from riot_ops import tasks as t

broker = os.environ.get("BROKER", f"file://{os.getcwd()}/broker")

# %% [markdown]
# ## The subscription
#
# A broker forgets a message once the subscriber has got it. `MQTTSource`
# therefore writes messages into a **spool** on disk first, from where they can
# be read again after a crash. It subscribes before anybody publishes.


# %%
def subscription(messages):
    """All messages of the topics, until there were so many."""
    names = {"topics": ["city/#"], "client_id": "lake", "spool": "spool"}
    return ro.connectors.MQTTSource(url=broker, **names, messages=messages)


source = subscription(6_000)
source.open()

# %% [markdown]
# ## The sensors
#
# Five sensors of a city publish their messages, SenML in JSON, for nine hours.
# Publishing is a step of a dataflow, too.

# %%
publisher = ro.Dataflow("sensors")
publish = t.PublishMQTT(url=broker, topic="city/readings", payload="payload", qos=1)
publisher.source("city").apply(publish, id="published").to("done")
sent = publisher.run(ro.streams.city(sensors=5, messages=12_000, seed=9))
print("published:", sent.summary.rows["published"])

# %% [markdown]
# ## The dataflow
#
# `parse` makes a record of each reading, with the time at which it was
# measured; `range` rejects impossible values, so that they can be looked at
# later: the stream `errors` becomes a table as well.

# %%
flow = ro.Dataflow("lake")
messages = flow.source("city", source.schema)
parsed = messages.apply(t.ParseSenML(schema="city"), id="parse")
check = t.RangeFilter(bounds="city", on_error="reject")
parsed.apply(check, id="readings").to("lake")

# %% [markdown]
# The **checkpoint** holds how far the run is. This one ends after half of the
# messages, as if the machine had been switched off.

# %%
lake = ro.connectors.DeltaSink("lake", partition_by="obs_type")
first = flow.run(source, sinks=lake, checkpoint="checkpoint")
source.close()
half = DeltaTable("lake/readings").version()
pd.Series(first.summary.rows, name="records").rename_axis("stream")

# %% [markdown]
# A new run with the same checkpoint continues after the last message. The
# commit of a batch to the table and the checkpoint agree, so nothing is written
# twice.

# %%
second = flow.run(subscription(12_000), sinks=lake, checkpoint="checkpoint")
table = DeltaTable("lake/readings").to_pandas()
known = ["seq", "sensor_id", "obs_type"]
rejected = DeltaTable("lake/errors").to_pandas()
written = len(table) + len(rejected)
print(f"readings and rejected readings: {written} · expected: {5 * 12_000}")
print("twice:", table.duplicated(known).sum())

# %% [markdown]
# ## The table
#
# A reader sees all of a batch or nothing, and may look at an earlier version:

# %%
versions = {"after the first run": half, "now": None}
tables = {name: DeltaTable("lake/readings", at) for name, at in versions.items()}
rows = {name: len(one.to_pandas()) for name, one in tables.items()}
pd.Series(rows, name="rows").rename_axis("version")

# %% [markdown]
# `partition_by` made a folder per quantity, so who asks for the temperature
# reads no other files:

# %%
wanted = [("obs_type", "=", "temperature")]
temperature = DeltaTable("lake/readings").to_pandas(partitions=wanted)
temperature = temperature.sort_values(["event_time", "sensor_id"])
temperature[["event_time", "sensor_id", "value"]].head(3)

# %% [markdown]
# The errors are a table too, with the reason (and the record as it was, in `raw`):

# %%
rejected.sort_values(["seq", "message"])[["seq", "task", "reason", "message"]].head(3)

# %% [markdown]
# ## The picture

# %%
temperature["span"] = temperature["event_time"].dt.floor("10min")
figure, axes = plt.subplots()
for sensor, readings in temperature.groupby("sensor_id"):
    means = readings.groupby("span")["value"].mean()
    axes.plot(means.index, means, label=f"sensor …{sensor[-4:]}")
border = table["event_time"][table["seq"] == 6_000].iloc[0]
axes.axvline(border, color="tab:gray", linestyle=":", label="restart")
axes.set_title("The table has no gap where the run was stopped")
axes.set_xlabel("time (UTC)")
axes.set_ylabel("temperature (°C), mean of 10 min")
axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
plt.show()

# %% [markdown]
# ## Read on
#
# - [Lakehouse tables](../howto/lakehouse.md): Delta and Iceberg, in folders and
#   object stores, from Spark.
# - [MQTT](../howto/mqtt.md): servers, logins, TLS, quality of service.
# - [Kafka](../howto/kafka.md): the same with `ro.connectors.KafkaSource`.
# - [Operate a running pipeline](../howto/operate.md): a run that never ends.
