"""A table of reserved networks with arbitrary places, for generated streams of addresses.

RFC 5737 and RFC 2544 reserve these networks for documentation and measurements. Real addresses need a real table.
"""

from __future__ import annotations

import functools
import ipaddress

__all__ = ["NETWORKS", "networks"]

#: Country code, country and cities; "" is an unknown city.
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
#: Blocks of addresses, and the prefix length of the networks in each.
BLOCKS = (("198.18.0.0/15", 24), ("192.0.2.0/24", 29), ("198.51.100.0/24", 29), ("203.0.113.0/24", 29))
#: One in this many networks is left out of the table, so that streams also have unknown addresses.
GAP = 16

NETWORKS = sum(2 ** (length - int(block.partition("/")[2])) for block, length in BLOCKS)


@functools.cache
def networks() -> tuple[tuple[str, str, str, str], ...]:
    """Return rows of network, country code, country and city.

    >>> networks()[0], len(networks())
    (('198.18.0.0/24', 'US', 'United States', ''), 570)
    """
    places = [(code, country, city) for code, country, cities in PLACES for city in cities]
    every = [str(net) for block, length in BLOCKS for net in ipaddress.ip_network(block).subnets(new_prefix=length)]
    # a step coprime to the number of cities gives each city about equally many networks
    return tuple((net, *places[i * 7 % len(places)]) for i, net in enumerate(every) if i % GAP != GAP - 1)
