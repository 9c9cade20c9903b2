"""URLs of a job: where they come from, and what is refused before anything is written."""

from __future__ import annotations

import re
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from fusion.callbacks import check_url
from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.targets import Policy, parse_target
from fusion.enqueue.build import build, payload_url
from fusion.enqueue.options import EnqueueOptions
from fusion.exceptions import ConfigurationError, OptionError
from fusion.settings import Settings

EVERY_PORT = tuple(range(1, 65536))
URL = "https://hooks.example.com/fusion?token=S3CR3T"


def built(
    *args: Any, allow_http: bool = False, payload: dict[str, Any] | None = None, settings: Settings | None = None, **options: Any
) -> dict[str, Any]:
    settings = settings or Settings(callback_allow_http=allow_http)
    fields = build(
        "tasks.sms.sendSMS", args, {} if payload is None else {"payload": payload}, EnqueueOptions(**options), settings
    )
    return {
        name: fields.new.fields.get(name) for name in ("success_task_handler", "failed_task_handler", "callback_url", "hooks")
    }


def test_without_urls_there_is_no_mark() -> None:
    assert set(built().values()) == {None}
    assert set(built(success_task_handler="", callback_url="").values()) == {None}


@pytest.mark.parametrize("name", ["success_task_handler", "failed_task_handler", "callback_url"])
def test_each_url_is_stored_as_it_is_with_the_mark(name: str) -> None:
    found = built(**{name: URL})
    assert {key: value for key, value in found.items() if value is not None} == {name: URL, "hooks": 1}


@pytest.mark.parametrize("callback", [1, "1", True])
def test_a_payload_may_ask_for_a_callback(callback: object) -> None:
    payload = {"to": "+1", "callback": callback, "callback_url": URL}
    assert built(payload)["callback_url"] == URL
    assert built(payload=payload)["callback_url"] == URL


@pytest.mark.parametrize(
    "payload",
    [
        {"callback_url": URL},
        {"callback": 0, "callback_url": URL},
        {"callback": "yes", "callback_url": URL},
        {"callback": [1], "callback_url": URL},
        {"callback": 1},
        {"callback": 1, "callback_url": None},
        "callback",
        ["callback", "callback_url"],
        None,
    ],
)
def test_a_payload_that_does_not_ask_for_one_gets_none(payload: Any) -> None:
    assert built(payload)["hooks"] is None


def test_the_option_comes_before_the_payload() -> None:
    other = "https://other.example.com/"
    assert built({"callback": 1, "callback_url": other}, callback_url=URL)["callback_url"] == URL


@pytest.mark.parametrize(
    "url",
    [
        "https://h",
        "HTTPS://H.example:8443",
        "https://h.example?x=1",
        "https://h.example/a/b;c=%20?d[]=e#f",
        "https://[2606:4700::1111]:443/",
        "https://xn--bcher-kva.example/",
        "https://h.example/" + "a" * (2048 - 18),
    ],
)
def test_urls(url: str) -> None:
    assert built(callback_url=url)["callback_url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///S3CR3T",
        "hooks.example.com/S3CR3T",
        "ftp://h.example/S3CR3T",
        "javascript:S3CR3T",
        "https://user:S3CR3T@h.example/",
        "https://h.example\\@S3CR3T/",
        "https://h.example/S3CR3T a",
        "https://h.example/S3CR3T\r\nX: y",
        "https://h.example/S3CR3T\n",
        "https://bücher.example/S3CR3T",
        "https://h.example/S3CR3T" + "a" * 2048,
        7,
        ["https://h.example/S3CR3T"],
    ],
)
@pytest.mark.parametrize("by_payload", [False, True])
def test_an_invalid_callback_url_is_refused_and_not_shown(url: object, by_payload: bool) -> None:
    with pytest.raises(ValueError, match="callback_url: use a URL like https://") as caught:
        built({"callback": 1, "callback_url": url}) if by_payload else built(callback_url=url)
    assert "S3CR3T" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://256.1.1.1/", "not an IPv4 address; write it as 192.0.2.1"),
        ("https://1.2.3.4.5/", "not an IPv4 address"),
        ("https://example.0x/", "not an IPv4 address"),
        ("https://a..b/", "must be a host name"),
        ("https://.a/", "must be a host name"),
        ("https://-a.b/", "must be a host name"),
        (f"https://{'a' * 64}.b/", "must be a host name"),
        (f"https://{'a.' * 126}abc/", "must be a host name"),
        ("https://[::::]/", "must be an IPv6 address"),
        ("https://[1.2.3.4]/", "must be an IPv6 address"),
        ("https://a.example:0/", "port 0 is out of range; use one from 1 to 65535"),
        ("https://a.example:65536/", "port 65536 is out of range"),
    ],
)
def test_a_url_that_no_setting_can_allow_is_refused_at_once(url: str, why: str) -> None:
    for name in ("success_task_handler", "failed_task_handler", "callback_url"):
        with pytest.raises(ValueError, match=f"^{name}: .*{why}"):
            built(**{name: url + "S3CR3T"})
    with pytest.raises(DeliveryRefused):
        parse_target(url, Policy(ports=(1, 65535), allowed_hosts=("*",)))


@hypothesis.given(st.from_regex(r"https://[a-z0-9.:\[\]x-]{1,20}(:[0-9]{1,5})?/?", fullmatch=True))
def test_an_accepted_url_can_be_allowed_by_settings(url: str) -> None:
    try:
        accepted = check_url("callback_url", url, Settings(callback_ports=EVERY_PORT))
    except ValueError:
        return
    host, port = re.fullmatch(r"https://(\[.*?\]|[^:/]*)(?::(\d+))?.*", url).groups()  # type: ignore[union-attr]
    policy = Policy(ports=(int(port or 443),), allowed_hosts=(host,))
    assert parse_target(accepted, policy).trusted


@pytest.mark.parametrize(
    ("url", "said", "mends"),
    [
        (
            "https://h.example:5000/",
            r"port 5000 is none of callback_ports \(443, 80, 8443\).*FUSION_CALLBACK_PORTS",
            {"callback_ports": (5000,)},
        ),
        (
            "https://127.0.0.1/",
            "127.0.0.1 is loopback.*FUSION_CALLBACK_ALLOWED_HOSTS",
            {"callback_allowed_hosts": ("127.0.0.1",)},
        ),
        ("https://2130706433/", "127.0.0.1 is loopback", {"callback_allowed_hosts": ("127.1", "x.example")}),
        ("https://10.1.2.3/", "10.1.2.3 is private", {"callback_allowed_hosts": ("10.1.2.3",)}),
        ("https://[::1]/", "::1 is loopback", {"callback_allowed_hosts": ("0:0:0:0:0:0:0:1",)}),
        ("https://[::ffff:10.0.0.1]/", "is private", {"callback_allowed_hosts": ("[::ffff:10.0.0.1]",)}),
        ("https://LOCALHOST./", "localhost is the loopback", {"callback_allowed_hosts": ("localhost",)}),
        ("https://shop.localhost/", "shop.localhost is the loopback", {"callback_allowed_hosts": ("*.localhost",)}),
    ],
)
@pytest.mark.parametrize("name", ["success_task_handler", "failed_task_handler", "callback_url", "payload"])
def test_a_port_and_an_address_inside_are_refused_with_the_setting(url: str, said: str, mends: dict[str, Any], name: str) -> None:
    def told(settings: Settings) -> Any:
        if name == "payload":
            return built({"callback": 1, "callback_url": url}, settings=settings)["callback_url"]
        return built(settings=settings, **{name: url})[name]

    for settings in (Settings(), Settings(callback_allowed_hosts=("*",))):
        with pytest.raises(OptionError, match=said):
            told(settings)
    assert told(Settings(**mends)) == url


def test_a_name_is_not_looked_up() -> None:
    for url in ("https://intranet/", "https://server1/", "https://8.8.8.8/", "https://h.example:8443/"):
        assert built(callback_url=url, settings=Settings(callback_allowed_hosts=("other.example",)))["callback_url"] == url


def test_plain_http_is_for_those_who_allow_it() -> None:
    with pytest.raises(ValueError, match="FUSION_CALLBACK_ALLOW_HTTP"):
        built(failed_task_handler="http://h.example/")
    assert built(failed_task_handler="http://h.example/", allow_http=True)["hooks"] == 1


def test_a_payload_is_the_first_argument_or_the_one_of_that_name() -> None:
    payload = {"callback": 1, "callback_url": URL}
    assert payload_url((), {"payload": payload}) == payload_url((payload,), {}) == URL
    assert payload_url((1,), {"payload": payload}) is None


# -- settings


def test_secrets_by_host_or_for_all() -> None:
    one, two = "whsec_" + "a" * 32, "whsec_" + "b" * 32
    every = {"*": (one, two)}
    for given in (f"{one},{two}", f"{one}\n{two}\n", [one, two], (one, two), {"*": [one, two]}):
        assert Settings(callback_secrets=given).callback_secrets == every
    found = Settings.load(env={"FUSION_CALLBACK_SECRETS": f'{{"Hooks.Example.com": "{one}"}}'})
    assert found.callback_secrets == {"hooks.example.com": (one,)}


@pytest.mark.parametrize("given", ["{", "", [], {}, {"h": []}, {"h": [1]}, {1: ["whsec_"]}, 7, '{"h": {"S3CR3T": 1}}'])
def test_secrets_that_can_not_be_read_are_not_shown(given: object) -> None:
    with pytest.raises(ConfigurationError, match="callback_secrets") as caught:
        Settings(callback_secrets=given)  # type: ignore[arg-type]
    assert "S3CR3T" not in str(caught.value)


def test_secrets_are_masked_and_their_hosts_are_not() -> None:
    settings = Settings.load(
        env={"FUSION_CALLBACK_SECRETS": '{"h.example": "whsec_S3CR3T"}', "FUSION_CALLBACK_SECRETS_FILE": "/f"}
    )
    assert settings.masked()["callback_secrets"] == {"h.example": "***"}
    assert settings.masked()["callback_secrets_file"] == "/f"
    assert "S3CR3T" not in repr(settings)


def test_ports() -> None:
    assert Settings().callback_ports == (443, 80, 8443)
    assert Settings(callback_ports="443, 9443").callback_ports == (443, 9443)  # type: ignore[arg-type]
    assert Settings(callback_ports=9443).callback_ports == (9443,)  # type: ignore[arg-type]
    for wrong in ("", "https", "0", [70000], []):
        with pytest.raises(ConfigurationError, match="ports from 1 to 65535"):
            Settings(callback_ports=wrong)  # type: ignore[arg-type]
