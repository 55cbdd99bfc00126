"""Where OAUTHBEARER tokens come from: a file, a token endpoint (client credentials), or an unsecured token of our own.

A token from an endpoint is kept until shortly before it expires, since many connections ask for it at once.
"""

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from twinlog.config.security import OAuthSource
from twinlog.errors import AuthenticationFailed, BadInput, Unreachable

TOKEN_TIMEOUT_S: Final = 10.0
MAX_TOKEN_BYTES: Final = 1 << 20
"""A token of some kilobytes is usual; a broker takes no larger request before the login (512 KiB)."""

_REUSED_SHARE: Final = 0.8  # as `sasl.login.refresh.window.factor`
_UNSECURED_SECONDS: Final = 3600


class TokenProvider(AbstractTokenProvider):
    """Tokens from one source, for kafka-python's OAUTHBEARER mechanism; blocking, so called in a thread."""

    def __init__(self, source: OAuthSource) -> None:
        self._source = source

    def token(self) -> str:
        """Return a token that is valid now.

        Raises BadInput (file), Unreachable and AuthenticationFailed (token endpoint).
        """
        source = self._source
        if source.token_file is not None:
            return _from_file(source.token_file)
        if source.token_endpoint is not None:
            return _kept_or_fetched(source)
        return _unsecured(source.unsecured_subject or "")

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions that go to the broker beside the token (KIP-342)."""
        return dict(self._source.extensions)


def _from_file(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise BadInput(f"The OAUTHBEARER token file {path} cannot be read: {error}.") from error
    if not token:
        raise BadInput(f"The OAUTHBEARER token file {path} is empty.")
    return token


_kept: Final[dict[OAuthSource, tuple[str, float]]] = {}
_lock: Final = threading.Lock()


def _kept_or_fetched(source: OAuthSource) -> str:
    with _lock:  # one thread fetches, the others wait for what it gets
        token, good_until = _kept.get(source, ("", 0.0))
        if time.monotonic() >= good_until:
            token, lifetime_s = _fetched(source)
            _kept[source] = token, time.monotonic() + lifetime_s * _REUSED_SHARE
        return token


def _fetched(source: OAuthSource) -> tuple[str, float]:
    endpoint = source.token_endpoint or ""
    try:
        with urllib.request.urlopen(_token_request(source), timeout=TOKEN_TIMEOUT_S) as response:  # noqa: S310  # settings allow http and https only
            answer = json.loads(response.read(MAX_TOKEN_BYTES))
        return str(answer["access_token"]), float(answer.get("expires_in", 0))
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500:
                raise Unreachable(f"The token endpoint {endpoint} answered with HTTP {error.code}.") from error
            raise AuthenticationFailed(
                f"The token endpoint {endpoint} refused client {source.client_id} for SASL mechanism OAUTHBEARER "
                f"(HTTP {error.code})."
            ) from error
    except OSError as error:
        raise Unreachable(f"The token endpoint {endpoint} cannot be reached: {error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuthenticationFailed(f"The token endpoint {endpoint} sent no OAuth token ({error}).") from error


def _token_request(source: OAuthSource) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    secret = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    return urllib.request.Request(  # noqa: S310  # settings allow http and https only
        source.token_endpoint or "",
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {secret}", "Accept": "application/json"},
    )


def _unsecured(subject: str) -> str:
    """Make an unsecured JWS, as `OAuthBearerUnsecuredLoginCallbackHandler` does; only test brokers accept it."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + _UNSECURED_SECONDS}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
