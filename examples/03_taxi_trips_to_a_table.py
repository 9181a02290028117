# %% [markdown]
# # Taxi trips into a table one can trust
#
# How much does a taxi earn in each hour of the week? The trips come as
# messages, some with impossible values, and the answer is a query of a
# database. Between the two stands **ETL**: *extract* the fields, *transform*
# (check, complete, compute), *load* into a table.

# %%
import sqlite3

import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro
from riot_ops import tasks as t

# %% [markdown]
# ## The data
#
# A week of sixty taxis, generated after the trips that New York published. At
# the end of a trip a taxi sends a message: SenML, the standard for sensor
# measurements in JSON. Of some trips the meter reports no time or no distance.

# %%
taxi = ro.streams.taxi(taxis=60, messages=4_733, seed=5)
ro.streams.write(taxi, "trips.txt")
with open("trips.txt") as lines:
    print(next(lines)[:200], "…")

# %% [markdown]
# The company has a list of its taxis and their garages. It is a CSV file; this
# one is made from the stream, and lacks a taxi.

# %%
parse = t.ParseSenML(schema="taxi", layout="wide")  # a column per field
look = ro.Dataflow("look")
look.source("taxi").apply(parse, id="parse").to("out")
trips = look.run("trips.txt")["parse"].to_pandas()
names = sorted(trips["taxi_identifier"].unique())[1:]
places = [("Bronx", "Brooklyn", "Queens")[i % 3] for i in range(len(names))]
garages = pd.DataFrame({"taxi": names, "garage": places})
garages.to_csv("garages.csv", index=False)
garages.head(3)

# %% [markdown]
# ## The dataflow
#
# - `check` rejects a trip with an impossible time or distance. A rejected
#   record goes to the stream `errors`, with the reason.
# - `garage` looks the taxi up in the list, and rejects what is not there.
# - `rate` computes a field by an expression.
# - `load` writes rows into a table, here of SQLite, in any other database with
#   the same code. A record that comes again, after a crash say, replaces its
#   own row.

# %%
bounds = {"trip_time_in_secs": (60, 7_200), "trip_distance": (0.1, 60)}
check = t.RangeFilter(bounds=bounds, by=None, on_error="reject")
garages = ro.tables.CSVTable("garages.csv", on="taxi")
rate = t.Compute({"dollars_per_mile": "fare_amount / trip_distance"})
fields = ["seq", "event_time", "taxi_identifier", "garage", "total_amount"]
target = {"store": "sqlite:///taxi.db", "table": "trips", "primary_key": ("seq",)}
load = t.InsertSQL(**target, fields=(*fields, "dollars_per_mile"), batch_size=1_000)

flow = ro.Dataflow("etl")
trips = flow.source("taxi").apply(parse, id="parse").apply(check, id="check")
known = trips.lookup(garages, "taxi_identifier", on_missing="reject", id="garage")
known.apply(rate, id="rate").apply(load, id="load").to("out")

# %%
result = flow.run("trips.txt")
result.errors.to_pandas().groupby(["task", "reason"]).size().rename("records")

# %% [markdown]
# The stream of errors says what was wrong with each of them:

# %%
result.errors.to_pandas()[["seq", "task", "message"]].iloc[[0, 1, -1]]

# %% [markdown]
# ## The table
#
# From here on any program that reads the database has clean trips.

# %%
database = sqlite3.connect("taxi.db")
pd.read_sql("SELECT * FROM trips LIMIT 3", database).round(2)

# %%
question = """
SELECT garage, COUNT(DISTINCT taxi_identifier) AS taxis, COUNT(*) AS trips,
  ROUND(SUM(total_amount)) AS dollars
FROM trips GROUP BY garage ORDER BY garage
"""
pd.read_sql(question, database)

# %% [markdown]
# ## The picture

# %%
question = "SELECT event_time, taxi_identifier, total_amount AS dollars FROM trips"
earned = pd.read_sql(question, database, parse_dates=["event_time"])
taxis = earned["taxi_identifier"].nunique()
when = earned["event_time"].dt
hours = earned.groupby([when.dayofweek, when.hour])["dollars"].sum() / taxis
figure, axes = plt.subplots()
picture = axes.imshow(hours.unstack(fill_value=0), cmap="viridis", aspect="auto")
axes.grid(False)
axes.set_yticks(range(7), ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
axes.set_xticks(range(0, 24, 3), [f"{hour}:00" for hour in range(0, 24, 3)])
axes.set_title("Where a taxi earns its money")
axes.set_xlabel("hour of the day (New York)")
figure.colorbar(picture, label="dollars per taxi and hour")
plt.show()

# %% [markdown]
# ## Read on
#
# - [ETL](../dataflows/etl.md): the ready-made application,
#   `ro.dataflows.etl("taxi")`, which also repairs single values and publishes
#   the clean messages.
# - [Tables](../howto/table.md): other databases, Azure tables, rows by key.
# - [Filter and compute with expressions](../howto/expressions.md): all that an
#   expression may contain.
