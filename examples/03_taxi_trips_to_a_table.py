# %% [markdown]
# # Taxi trips into a table one can trust
#
# How much does a taxi earn in each hour of the week? The trips come as messages, some with impossible values, and the answer is a query of a
# database. Between the two stands **ETL**: *extract* the fields, *transform* (check, complete, compute), *load* into a table.

# %%
import sqlite3

import matplotlib.pyplot as plt
import pandas as pd

import riot_ops as ro
from riot_ops import tasks as t

# %% [markdown]
# ## The data
#
# A week of sixty taxis, generated after the trips that New York published. At the end of a trip a taxi sends a message: SenML, the
# standard for sensor measurements in JSON. Of some trips the meter reports no time or no distance.

# %%
taxi = ro.streams.taxi(taxis=60, messages=4_733, seed=5)
ro.streams.write(taxi, "trips.txt")
with open("trips.txt") as lines:
    print(next(lines)[:200], "…")

# %% [markdown]
# The company has a list of its taxis and their garages. It is a CSV file; this one is made from the stream, and lacks a taxi.

# %%
parse = t.ParseSenML(schema="taxi", layout="wide")  # a record per message, with a column per field
look = ro.Dataflow("look")
look.source("taxi").apply(parse, id="parse").to("out")
trips = look.run("trips.txt")["parse"].to_pandas()
names = sorted(trips["taxi_identifier"].unique())[1:]
garages = pd.DataFrame({"taxi": names, "garage": [("Bronx", "Brooklyn", "Queens")[i % 3] for i in range(len(names))]})
garages.to_csv("garages.csv", index=False)
garages.head(3)

# %% [markdown]
# ## The dataflow
#
# - `valid` rejects a trip with an impossible time, distance or fare. A rejected record goes to the stream `errors`, with the reason.
# - `garage` looks the taxi up in the list, and rejects what is not there.
# - `rate` computes a field by an expression.
# - `load` writes rows into a table, here of SQLite, in any other database with the same code. A record that comes again, after a crash say, replaces its own row.

# %%
bounds = {"trip_time_in_secs": (60, 7_200), "trip_distance": (0.1, 60), "fare_amount": (2.5, 300)}
flow = ro.Dataflow("etl")
parsed = flow.source("taxi").apply(parse, id="parse")
valid = parsed.apply(t.RangeFilter(bounds=bounds, by=None, on_error="reject"), id="valid")
known = valid.lookup(
    ro.tables.CSVTable("garages.csv", on="taxi"), on="taxi_identifier", on_missing="reject", id="garage"
)
rated = known.apply(t.Compute({"dollars_per_mile": "fare_amount / trip_distance"}), id="rate")
fields = ("seq", "event_time", "taxi_identifier", "garage", "trip_distance", "total_amount", "dollars_per_mile")
load = t.InsertSQL(store="sqlite:///taxi.db", table="trips", primary_key=("seq",), fields=fields, batch_size=1_000)
rated.apply(load, id="load").to("out")

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
SELECT garage, COUNT(DISTINCT taxi_identifier) AS taxis, COUNT(*) AS trips, ROUND(SUM(total_amount)) AS dollars
FROM trips GROUP BY garage ORDER BY garage
"""
pd.read_sql(question, database)

# %% [markdown]
# ## The picture

# %%
question = (
    "SELECT event_time, SUM(total_amount) AS dollars, taxi_identifier FROM trips GROUP BY event_time, taxi_identifier"
)
earned = pd.read_sql(question, database, parse_dates=["event_time"])
taxis = earned["taxi_identifier"].nunique()
when = earned["event_time"].dt
hours = earned.groupby([when.dayofweek, when.hour])["dollars"].sum().unstack(fill_value=0) / taxis
figure, axes = plt.subplots()
picture = axes.imshow(hours, cmap="viridis", aspect="auto")
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
# - [ETL](../dataflows/etl.md): the ready-made application, `ro.dataflows.etl("taxi")`, which also repairs single values and publishes the clean messages.
# - [Tables](../howto/table.md): other databases, Azure tables, rows by key.
# - [Filter and compute with expressions](../howto/expressions.md): all that an expression may contain.
