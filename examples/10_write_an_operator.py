# %% [markdown]
# # Write and test an operator of your own
#
# What if none of the library's operators does what you need? Here it is a
# thermostat: it turns a heater on below one temperature and off above a higher
# one, so that noise at a single limit does not switch it a hundred times. It
# takes a short class, and a kit tests it as the library tests its own.

# %%
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa

import riot_ops as ro
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.task import Case, KeyedTask, StateField, register
from riot_ops.task import replace_column, with_field
from riot_ops.testing import check_task

# %% [markdown]
# ## First as a function
#
# Whatever fits into a function needs no class. `fold` calls a function with the
# **state** of the record's key and the record; it returns the new state and the
# result. The key is the room: each has a thermostat of its own.


# %%
def thermostat(heating, row):
    if row["celsius"] < 19.0:
        heating = True
    elif row["celsius"] > 21.0:
        heating = False
    return heating, {**row, "heating": heating}


flow = ro.Dataflow("rooms")
fields = {"room": str, "celsius": float}
rooms = flow.source("readings", fields).key_by("room")
rooms.fold(thermostat, initial=False, schema={**fields, "heating": bool}).to("out")
some = [("hall", 18.5), ("hall", 20.0), ("attic", 20.0), ("hall", 21.5), ("hall", 20.0)]
rows = [dict(zip(fields, one, strict=True)) for one in some]
flow.run(rows)["thermostat"].to_pandas()

# %% [markdown]
# ## Then as an operator
#
# A class is worth it when the operator has parameters, should be fast, or is
# for others too. It is a frozen dataclass; its fields are its parameters. It
# says which fields it reads and writes, and what the state of one key is. The
# library keeps the state of all keys in arrays, saves it, moves it and restores
# it; `slots` says where in them the key of each row is.
#
# `update` gets many rows at once. The loop is plain Python here; with
# `@numba.njit` above it, it runs as fast as in C.


# %%
def switch(values, slots, heating, low, high, out):
    """Write for each value whether the heater is on after it."""
    for i, (value, slot) in enumerate(zip(values, slots, strict=True)):
        if value < low:
            heating[slot] = True
        elif value > high:
            heating[slot] = False
        out[i] = heating[slot]  # a missing value, NaN, changes nothing


@register
@dataclass(frozen=True, kw_only=True)
class Thermostat(KeyedTask):
    """Turn a heater on below a low temperature and off above a high one.

    Parameters
    ----------
    low, high : float, default 19.0 and 21.0
        The heater is turned on below ``low`` and off above ``high``.
    value : str, default "celsius"
        Field with the temperature.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> bool[n] in ``heating``, 1:1; a byte of state per key.

    Missing values
    --------------
    A missing temperature leaves the heater as it is.

    Errors
    ------
    None.

    References
    ----------
    .. [1] O. H. Schmitt, *A thermionic trigger*, 1938: two limits in place of one.

    Examples
    --------
    >>> session = Thermostat().session()
    >>> readings = ({"celsius": value} for value in (18.0, 20.0, 22.0, 20.0))
    >>> [row["heating"] for row in session.push_many(readings)]
    [True, True, False, False]
    """

    code = "THM"

    low: float = 19.0
    high: float = 21.0
    value: str = "celsius"

    def validate(self):
        if not self.low < self.high:
            raise ro.ConfigError(
                f"thermostat: low must be below high, got {self.low} and {self.high}"
            )

    def requires(self):
        return {**super().requires(), self.value: "number"}

    def writes(self):
        return frozenset({"heating"})

    def output_schema(self, schema):
        self.check_input(schema)
        return with_field(schema, pa.field("heating", pa.bool_()))

    def state_fields(self):
        return {"heating": StateField("bool", initial=False)}

    def update(self, batch, slots, state, dead):
        values, _ = float_column(batch.column(self.value))
        out = np.empty(len(values), bool)
        switch(values, slots, state["heating"], self.low, self.high, out)
        return replace_column(batch, "heating", pa.array(out))

    @classmethod
    def cases(cls):
        celsius = [18.0, 25.0, None, float("nan"), 22.0, -1e300]
        readings = {"room": ["a", "b", "a", None, "a", "b"], "celsius": celsius}
        batch = pa.RecordBatch.from_pydict(readings)
        yield Case(cls(by="room"), batch)
        yield Case(cls(low=-5.0, high=0.0), batch)


# %% [markdown]
# ## Test it
#
# Three tests belong to an operator. `check_task` runs the library's own checks
# over the `cases`: results do not depend on how the stream is cut or where it
# is restarted, keys do not influence each other, bad values do no harm, and
# more.

# %%
print("all passed:", check_task(Thermostat) > 0)

# %% [markdown]
# The second compares it with another way to say the same, here the function
# from above, over random values:

# %%
random = np.random.default_rng(1)
many = pd.DataFrame(
    {"room": ["a", "b"] * 1_000, "celsius": random.normal(20, 2, 2_000)}
)
fast = ro.Dataflow("fast")
keyed = fast.source("readings", fields).key_by("room")
keyed.apply(Thermostat(), id="thermostat").to("out")
by_class, by_function = (one.run(many)["thermostat"] for one in (fast, flow))
print("the same as the function:", by_class.equals(by_function))

# %% [markdown]
# The third makes sure that a wrong use is refused at once, with a message that
# helps:

# %%
try:
    Thermostat(low=22.0)
except ro.ConfigError as error:
    print(error)

# %% [markdown]
# ## Use it
#
# Half a day in a room that the heater warms, with a noisy sensor. The room is
# simulated here, and the operator decides, reading by reading, in a
# **session**: that is an operator by itself, for tests and for programs that
# get one record at a time.


# %%
def half_day(task):
    """The temperature and the heater's state at each minute of half a day."""
    random, session = np.random.default_rng(5), task.session()
    true, heating, seen = 20.0, False, []
    for minute in range(12 * 60):
        outside = 4 - 6 * np.cos(2 * np.pi * (minute / 60 - 3) / 24)
        true += (outside - true) / 400 + 0.08 * heating
        celsius = true + random.normal(0, 0.15)
        heating = session.push({"celsius": celsius})[0]["heating"]
        seen.append((minute / 60, celsius, heating))
    return pd.DataFrame(seen, columns=["hour", "celsius", "heating"])


narrow, wide = Thermostat(low=19.99, high=20.01), Thermostat()
rooms = {"one limit (±0.01 °C)": half_day(narrow), "two limits": half_day(wide)}
changes = {name: one["heating"].astype(int).diff().abs() for name, one in rooms.items()}
switched = {name: int(one.sum()) for name, one in changes.items()}
pd.Series(switched, name="times switched").rename_axis("thermostat")

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots(2, 1, figsize=(9, 5), sharex=True, sharey=True)
for axis, (name, one) in zip(axes, rooms.items(), strict=True):
    axis.plot(one["hour"], one["celsius"], linewidth=1, label="temperature")
    shade = {"step": "post", "alpha": 0.25, "linewidth": 0, "color": "tab:orange"}
    on = one["heating"]
    axis.fill_between(one["hour"], 18, 22.5, where=on, **shade, label="heater on")
    axis.set_title(f"{name}: switched {switched[name]} times")
    axis.set_ylabel("°C")
figure.suptitle("A thermostat with two limits spares the heater")
axes[0].legend(ncols=2, loc="upper right")
axes[1].set_xlabel("hour")
axes[1].set_xticks(range(0, 13, 2))
plt.show()

# %% [markdown]
# ## Read on
#
# - [A task of your own](../howto/custom_task.md): all that a class may define,
#   operators that act when time passes.
# - [A stream of your own](../howto/custom_stream.md): the same for a source.
# - [Contributing](../../CONTRIBUTING.md): how the library's own operators are
#   written and tested.
