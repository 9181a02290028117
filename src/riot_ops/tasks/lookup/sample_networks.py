"""A table of networks that belong to nobody, with places for them: for streams of addresses that are made up.

The networks are those that RFC 5737 and RFC 2544 set aside for documentation and for measurements; which place has
which is arbitrary. Real addresses need a real table.
"""

from __future__ import annotations

import functools
import ipaddress

__all__ = ["NETWORKS", "networks"]

#: Code of the country, its name, and its places; "" is one whose name is not known.
PLACES = (
    ("US", "United States", ("", "Denver", "Boston", "Seattle", "Austin", "Chicago")),
    ("IN", "India", ("Bengaluru", "Pune", "Chennai", "Delhi")),
    ("CN", "China", ("Beijing", "Wuhan", "Chengdu", "Xiamen")),
    ("BR", "Brazil", ("Porto Alegre", "Recife", "")),
    ("DE", "Germany", ("Leipzig", "Bremen", "Ulm")),
    ("FR", "France", ("Lyon", "Nantes", "")),
    ("JP", "Japan", ("Kyoto", "Sendai", "Osaka")),
    ("GB", "United Kingdom", ("Leeds", "Bristol")),
    ("IT", "Italy", ("Pisa", "Turin")),
    ("ES", "Spain", ("Bilbao", "Granada")),
    ("IE", "Ireland", ("Dublin",)),
    ("NL", "Netherlands", ("Utrecht",)),
    ("PT", "Portugal", ("Porto",)),
    ("FI", "Finland", ("Oulu",)),
    ("KE", "Kenya", ("Mombasa",)),
    ("NZ", "New Zealand", ("Dunedin",)),
)
#: Where the networks lie, and how long their prefixes are.
BLOCKS = (("198.18.0.0/15", 24), ("192.0.2.0/24", 29), ("198.51.100.0/24", 29), ("203.0.113.0/24", 29))
#: One in so many networks stays out of the table: addresses that nobody can place.
GAP = 16

NETWORKS = sum(2 ** (length - int(block.partition("/")[2])) for block, length in BLOCKS)


@functools.cache
def networks() -> tuple[tuple[str, str, str, str], ...]:
    """Network, code of its country, country and city.

    >>> networks()[0], len(networks())
    (('198.18.0.0/24', 'US', 'United States', ''), 570)
    """
    places = [(code, country, city) for code, country, cities in PLACES for city in cities]
    every = [str(net) for block, length in BLOCKS for net in ipaddress.ip_network(block).subnets(new_prefix=length)]
    # a step that shares no factor with the places deals them out unevenly by countries, evenly by cities
    return tuple((net, *places[i * 7 % len(places)]) for i, net in enumerate(every) if i % GAP != GAP - 1)
