"""Which addresses may be scraped for a target that a person added through page or API.

`fetch` asks for each address as it is about to be connected to. Files named on the command line are trusted and do not
pass here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services of clouds that are outside the link-local ranges.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_THIS_HOST = ipaddress.ip_network("0.0.0.0/8")
_6TO4 = ipaddress.ip_network("2002::/16")


def networks(texts: Sequence[str]) -> list[Network]:
    """CIDR texts as networks. Raises ValueError."""
    return [ipaddress.ip_network(text, strict=False) for text in texts]


def is_literal(host: str) -> bool:
    """Whether a host is an address itself, and no name."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def allowed(address: str, inside: Sequence[Network]) -> bool:
    """Whether a literal address may be scraped: inside one of the networks, and never loopback, link-local, a metadata
    service, multicast or unspecified, however it is dressed up. False for what is no address.
    """
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return all(_may(one, inside) for one in _faces(found))


def _faces(address: Address) -> list[Address]:
    """The address that is really reached: the IPv4 one inside an IPv6 one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address in _NAT64:
            return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
        if address in _6TO4:
            return [address, ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF)]
    return [address]


def _may(address: Address, inside: Sequence[Network]) -> bool:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    if address in _METADATA or address in _THIS_HOST:
        return False
    return any(address.version == network.version and address in network for network in inside)
