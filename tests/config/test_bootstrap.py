"""Lists of broker addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.bootstrap import MAX_ADDRESSES, parse_bootstrap
from twinlog.errors import BadInput


def test_addresses_of_every_kind() -> None:
    """Names, IPv4, bracketed IPv6 and a bare port are read in order, each once; blanks between them are nothing."""
    text = " a:1, b_2.example.com.:9092,,:9094,[::1]:9092,[fe80::1%eth0]:1,10.0.0.1:65535,a:1,"
    assert parse_bootstrap(text) == (
        ("a", 1),
        ("b_2.example.com.", 9092),
        ("localhost", 9094),
        ("::1", 9092),
        ("fe80::1%eth0", 1),
        ("10.0.0.1", 65535),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("localhost", r"'localhost' has no port; .* for example localhost:9092"),
        ("a:9092,host:notaport", "'host:notaport' has no valid port"),
        ("host:", "'host:' has no valid port"),
        ("host:0", "from 1 to 65535"),
        ("host:70000", "from 1 to 65535"),
        ("host:-1", "from 1 to 65535"),
        ("host:٣", "from 1 to 65535"),
        ("http://host:9092", "has a protocol in front"),
        ("::1:9092", r"put an IPv6 address in brackets"),
        ("[::g]:9092", "no valid IPv6 address"),
        ("[]:9092", "no valid IPv6 address"),
        ("my host:9092", "no valid host name"),
        ("-a:9092", "no valid host name"),
        ("müller:9092", "no valid host name"),
        ("a" * 300 + ":9092", "no valid host name"),
    ],
)
def test_a_wrong_address_is_quoted_with_the_reason(text: str, complaint: str) -> None:
    """Each mistake gets a sentence of its own."""
    with pytest.raises(BadInput, match=complaint) as problem:
        parse_bootstrap(text)
    assert len(str(problem.value)) < 300


def test_the_number_of_addresses_is_bounded() -> None:
    """A list longer than anyone needs is refused."""
    with pytest.raises(BadInput, match="too many"):
        parse_bootstrap(",".join(f"h{n}:1" for n in range(MAX_ADDRESSES + 1)))


@given(st.text() | st.text(alphabet="ab1:[],. %-"))
def test_any_text_is_a_list_or_bad_input(text: str) -> None:
    """No text makes the parser fail in another way; what it accepts has hosts and ports."""
    try:
        addresses = parse_bootstrap(text)
    except BadInput:
        return
    assert addresses
    assert all(host and 1 <= port <= 65535 for host, port in addresses)
