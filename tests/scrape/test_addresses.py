"""Which addresses a person may have scraped."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.environment import PRIVATE_RANGES, words
from gpufleet.scrape.addresses import Network, allowed, networks

PRIVATE = networks(words(PRIVATE_RANGES))
ALL = networks(["0.0.0.0/0", "::/0"])
NEVER = [  # noqa: S104 - addresses that must not pass
    *(
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "[::1]",
        "0.0.0.1",
        str(IPv4Address(0)),
        "::",
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
    ),
    *("fe80::1%eth0", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "224.0.0.1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("inside", [PRIVATE, ALL], ids=["private", "all"])
def test_never(address: str, inside: list[Network]) -> None:
    assert not allowed(address, inside)


@pytest.mark.parametrize("address", ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::9"])
def test_private_ranges(address: str) -> None:
    assert allowed(address, PRIVATE)


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "192.169.0.1", "2001:db8::1", "11.0.0.1"])
def test_outside_the_ranges(address: str) -> None:
    assert not allowed(address, PRIVATE)


@pytest.mark.parametrize("address", ["", "host", "127.1", "2130706433", "0x7f.1", "10.0.0.1.", "10.0.0"])
def test_no_address(address: str) -> None:
    assert not allowed(address, ALL)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_the_one_inside(address: object) -> None:
    assert allowed(f"::ffff:{address}", PRIVATE) == allowed(str(address), PRIVATE)
