"""Where OAUTHBEARER tokens come from, with a token endpoint on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from twinlog.config.security import OAuthSource
from twinlog.errors import AuthenticationFailed, BadInput, Unreachable
from twinlog.wire.oauth import TokenProvider


class Endpoint:
    """A token endpoint that answers what a test tells it to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "tok-1", "expires_in": 3600}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.asked.append((self.headers["Authorization"], parse_qs(form)))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def source(self, **options: Any) -> OAuthSource:
        """Settings that point here."""
        url = f"http://127.0.0.1:{self.server.server_port}/token"
        return OAuthSource(token_endpoint=url, client_id="me", client_secret="hush", **options)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A token endpoint that runs in a thread."""
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_a_token_is_asked_for_with_client_credentials(endpoint: Endpoint) -> None:
    """Grant, scope and credentials go as RFC 6749 has them."""
    assert TokenProvider(endpoint.source(scope="kafka")).token() == "tok-1"
    authorization, form = endpoint.asked[0]
    assert authorization == "Basic " + base64.b64encode(b"me:hush").decode()
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_a_token_is_kept_while_it_is_valid(endpoint: Endpoint) -> None:
    """Many connections of one client ask once; a token without a lifetime is asked for each time."""
    source = endpoint.source()
    assert [TokenProvider(source).token() for _ in range(3)] == ["tok-1"] * 3
    assert len(endpoint.asked) == 1
    endpoint.answer = {"access_token": "tok-2"}
    other = endpoint.source(scope="other")
    assert [TokenProvider(other).token() for _ in range(2)] == ["tok-2"] * 2
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, {"error": "invalid_client"}, AuthenticationFailed),
        (503, {}, Unreachable),
        (200, {"token": "x"}, AuthenticationFailed),
        (200, ["x"], AuthenticationFailed),
    ],
)
def test_an_endpoint_that_gives_no_token(endpoint: Endpoint, status: int, answer: Any, error: type[Exception]) -> None:
    """A refusal is for the user to mend, a breakdown may pass; the secret is in no message."""
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(error, match=r"token endpoint http://127\.0\.0\.1") as raised:
        TokenProvider(endpoint.source()).token()
    assert "hush" not in str(raised.value)


def test_an_endpoint_that_is_not_there(unused_tcp_port: int) -> None:
    """No listener may be there tomorrow."""
    source = OAuthSource(token_endpoint=f"http://127.0.0.1:{unused_tcp_port}/", client_id="a", client_secret="b")
    with pytest.raises(Unreachable, match="cannot be reached"):
        TokenProvider(source).token()


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    """Whoever renews the file need not tell us."""
    file = tmp_path / "token"
    provider = TokenProvider(OAuthSource(token_file=str(file)))
    with pytest.raises(BadInput, match="cannot be read"):
        provider.token()
    file.write_text("one\n")
    assert provider.token() == "one"
    file.write_text("two")
    assert provider.token() == "two"
    file.write_text(" \n")
    with pytest.raises(BadInput, match="is empty"):
        provider.token()


def test_an_unsecured_token_names_its_subject() -> None:
    """The form that Kafka's unsecured handler accepts: header, claims, and no signature."""
    header, claims, signature = TokenProvider(OAuthSource(unsecured_subject="ann")).token().split(".")
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (decoded["sub"], signature) == ("ann", "")
    assert decoded["exp"] > decoded["iat"]


def test_extensions_are_passed_on() -> None:
    """KIP-342's extensions are the broker's business."""
    assert TokenProvider(OAuthSource(unsecured_subject="a", extensions=(("k", "v"),))).extensions() == {"k": "v"}
