"""How a connection finds the node that serves its slot, among nodes that do not answer or that have other addresses from here."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions as errors

from fusion.exceptions import ConfigurationError
from fusion.settings import Settings
from fusion.store.client.classify import classify, one_line
from fusion.store.client.cluster import Address, ClusterNodes, nodes_of, read_url
from fusion.store.client.connections import connect, url_of
from fusion.store.client.maybe_executed import may_have_run
from fusion.store.layout.slots import slot_of, tag_of

A, B, C = ("a", 1), ("b", 2), ("c", 3)
SLOT = 9735


class World:
    """Nodes by the addresses at which they are reached. `names`: how nodes name each other, by their ids."""

    def __init__(self, there: dict[Address, str], names: dict[str, tuple[Any, int]], owner: str) -> None:
        self.there, self.names, self.owner = there, names, owner
        self.asked: list[Address] = []

    def replies(self, address: Address) -> tuple[Any, Any]:
        self.asked.append(address)
        if address not in self.there:
            raise errors.ConnectionError(f"Error 111 connecting to {address[0]}:{address[1]}. Connection refused.")
        rows = [
            [(SLOT if one == self.owner else 0), (SLOT if one == self.owner else 1), [*map(_sent, name), one.encode(), []]]
            for one, name in self.names.items()
        ]
        return rows, self.there[address].encode()

    def find(self, nodes: ClusterNodes) -> Address:
        """Do as a connection does. Returns where it ends up."""
        self.asked.clear()
        steps = nodes.route(60)
        address = next(steps)
        while True:
            try:
                replies = self.replies(address)
            except errors.RedisError as error:
                address = steps.throw(error)
                continue
            try:
                address = steps.send(replies)
            except StopIteration:
                return address


def _sent(word: Any) -> Any:
    return word.encode() if isinstance(word, str) else word


def plain(owner: str) -> World:
    return World({A: "one", B: "two", C: "three"}, {"one": A, "two": B, "three": C}, owner)


def test_the_right_node_is_asked_first_from_then_on() -> None:
    world, nodes = plain("two"), ClusterNodes([A], SLOT, {})
    assert world.find(nodes) == B
    assert world.asked == [A, B]
    assert world.find(nodes) == B
    assert world.asked == [B], "its own answer says that it is right"
    world.owner = "three"
    assert world.find(nodes) == C
    assert world.asked == [B, C]


def test_a_node_that_does_not_answer_is_asked_last() -> None:
    world, nodes = plain("three"), ClusterNodes([A, B], SLOT, {})
    del world.there[A]
    assert world.find(nodes) == C
    assert world.asked == [A, B, C]
    assert world.find(nodes) == C
    del world.there[C]
    world.owner = "two"
    assert world.find(nodes) == B
    assert world.asked == [C, B], "not A, which did not answer last time"


def test_while_the_owner_is_dead_each_node_is_tried_once_and_the_error_names_it() -> None:
    world, nodes = plain("two"), ClusterNodes([A, C], SLOT, {})
    del world.there[B]
    with pytest.raises(errors.ConnectionError, match=r"^Error connecting to the node b:2: Connection refused$") as caught:
        world.find(nodes)
    assert world.asked == [A, B, ("a", 2), C, ("c", 2)]
    assert classify(caught.value) == "transient"
    assert not may_have_run(caught.value)


@pytest.mark.parametrize("unknown", ["", "?", None])
def test_a_host_that_a_node_does_not_know_is_the_one_that_was_asked(unknown: str | None) -> None:
    world = World({("h", 1): "one", ("h", 2): "two"}, {"one": (unknown, 1), "two": (unknown, 2)}, "two")
    assert world.find(ClusterNodes([("h", 1)], SLOT, {})) == ("h", 2)
    assert world.asked == [("h", 1), ("h", 2)]


def test_a_host_that_leads_nowhere_is_replaced_by_the_one_that_was_asked() -> None:
    """As with nodes in containers whose ports are published."""
    world = World({("h", 1): "one", ("h", 2): "two"}, {"one": ("10.0.0.1", 1), "two": ("10.0.0.2", 2)}, "two")
    nodes = ClusterNodes([("h", 1)], SLOT, {})
    assert world.find(nodes) == ("h", 2)
    assert world.asked == [("h", 1), ("10.0.0.2", 2), ("h", 2)]
    world.find(nodes)
    assert world.asked == [("h", 2)]


def test_another_node_at_that_port_is_not_taken_for_the_owner() -> None:
    world = World({("h", 1): "one", ("h", 2): "of another cluster"}, {"one": ("10.0.0.1", 1), "two": ("10.0.0.2", 2)}, "two")
    with pytest.raises(errors.ConnectionError, match=r"node 10\.0\.0\.2:2: Connection refused"):
        world.find(ClusterNodes([("h", 1)], SLOT, {}))
    assert world.asked == [("h", 1), ("10.0.0.2", 2), ("h", 2)]


def test_an_address_is_mapped_to_where_its_node_is_reached() -> None:
    world = World({("h", 7): "one", ("h", 8): "two"}, {"one": ("10.0.0.1", 6379), "two": ("10.0.0.2", 6379)}, "two")
    nodes = ClusterNodes([("h", 7)], SLOT, {"10.0.0.1:6379": "h:7", "10.0.0.2:6379": "h:8"})
    assert world.find(nodes) == ("h", 8)
    assert world.asked == [("h", 7), ("h", 8)]


def test_nobody_serves_the_slot() -> None:
    with pytest.raises(errors.ClusterDownError, match="no node serves the slot 9735") as caught:
        plain("nobody").find(ClusterNodes([A], SLOT, {}))
    assert classify(caught.value) == "transient"
    assert not may_have_run(caught.value)


def test_a_wrong_password_is_no_reason_to_ask_the_next_node() -> None:
    steps = ClusterNodes([A, B], SLOT, {}).route(60)
    next(steps)
    with pytest.raises(errors.AuthenticationError):
        steps.throw(errors.AuthenticationError("WRONGPASS invalid username-password pair or user is disabled."))


def test_no_attempt_begins_once_patience_is_over() -> None:
    steps = ClusterNodes([A, B], SLOT, {}).route(-1)
    assert next(steps) == A
    with pytest.raises(errors.ConnectionError, match="node a:1: Timeout reading from socket"):
        steps.throw(errors.TimeoutError("Timeout reading from socket"))


# -- urls, prefixes, settings


def test_urls_of_clusters() -> None:
    assert read_url("redis+cluster://h") == ([("h", 6379)], "redis://h:6379")
    assert read_url("rediss+cluster://u:p%40@h:1,[::1]:2,i/0?max_connections=5") == (
        [("h", 1), ("::1", 2), ("i", 6379)],
        "rediss://u:p%40@h:1/0?max_connections=5",
    )


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster:///0",
        "redis+cluster://h:0",
        "redis+cluster://h:70000",
        "redis+cluster://h,",
        "redis+cluster://h:x",
    ],
)
def test_urls_that_name_no_node(url: str) -> None:
    with pytest.raises(ConfigurationError, match="use redis\\+cluster://user:password@host:6379"):
        connect(url, settings=Settings(prefix="rq:{a}:"))


def test_a_cluster_has_no_database_numbers() -> None:
    connect("redis+cluster://h/0", settings=Settings(prefix="rq:{a}:"))
    with pytest.raises(ConfigurationError, match="a cluster has the database 0 only; leave the number out"):
        connect("redis+cluster://h:1/3", settings=Settings(prefix="rq:{a}:"))


def test_the_login_and_other_options_are_those_of_other_urls() -> None:
    conn = connect("redis+cluster://ann:p%40@h:1,i:2?max_connections=5", settings=Settings(prefix="rq:{a}:"))
    options = conn.connection_pool.connection_kwargs
    assert (options["username"], options["password"], conn.connection_pool.max_connections) == ("ann", "p@", 5)
    assert url_of(conn) == "redis+cluster://h:1,i:2"
    assert url_of(connect("rediss+cluster://ann:p%40@h:1", settings=Settings(prefix="rq:{a}:"))) == "rediss+cluster://h:1"
    with pytest.raises(ConfigurationError, match=r"'redis\+cluster://ann:\*\*\*@h\?x=1': option 'x' is not known"):
        connect("redis+cluster://ann:secret@h?x=1", settings=Settings(prefix="rq:{a}:"))


def test_a_prefix_without_a_tag_is_refused_for_a_cluster_and_the_error_names_one() -> None:
    with pytest.raises(ConfigurationError, match=r"FUSION_PREFIX='shop:\{fusion\}:'"):
        connect("redis+cluster://h", settings=Settings(prefix="shop:"))
    with pytest.raises(ConfigurationError, match=r"FUSION_PREFIX='rq:\{fusion\}:'"):
        connect(Settings.load(env={"FUSION_REDIS_URL": "redis+cluster://h", "FUSION_PREFIX": "rq:"}))


def test_the_default_prefix_on_a_cluster_is_the_same_for_everybody() -> None:
    assert Settings(redis_url="redis+cluster://h").prefix == "rq:{fusion}:"
    assert Settings.load(env={"REDIS_URL": "rediss+cluster://u:p@h"}).prefix == "rq:{fusion}:"
    assert Settings.load(env={}, redis_url="redis+cluster://h").prefix == "rq:{fusion}:"
    assert Settings(redis_url="redis+cluster://h", prefix="shop:{a}:").prefix == "shop:{a}:"
    assert Settings(redis_url="redis://u:+cluster:@h").prefix == "rq:"


@pytest.mark.parametrize("prefix", ["rq:{}:", "rq:{a}{b}:", "{a", "a}", "{{a}}", "", "x" * 65, "rq:{a b}:"])
def test_prefixes_with_wrong_tags_are_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        Settings(prefix=prefix)


def test_tags_and_slots() -> None:
    assert [tag_of(prefix) for prefix in ("rq:", "rq:{a}:", "{b}", "rq:{}:{c}:")] == ["", "a", "b", ""]
    assert slot_of("rq:{fusion}:") == slot_of("other:{fusion}:queue:sms") == 9735


def test_where_nodes_are_reached_is_a_setting() -> None:
    settings = Settings.load(env={"FUSION_CLUSTER_NAT": "10.0.0.1:6379=h:7001, [::1]:2=i:3"})
    assert settings.cluster_nat == {"10.0.0.1:6379": "h:7001", "[::1]:2": "i:3"}
    for wrong in ("a=b", "a:1", "a:1=b", "a:1=b:x"):
        with pytest.raises(ConfigurationError, match="HOST:PORT=HOST:PORT"):
            Settings(cluster_nat=wrong)  # type: ignore[arg-type]
    conn = connect("redis+cluster://h", settings=Settings(prefix="{a}", cluster_nat={"a:1": "[::1]:2"}))
    nodes: ClusterNodes = conn.connection_pool.connection_kwargs["nodes"]
    ((_, _, (node,)),) = nodes.read([[0, 1, [b"a", 1, b"id"]]], A)
    assert node.address == ("::1", 2)


# -- replies


def test_a_slot_on_its_way_is_waited_for() -> None:
    for error in (
        errors.MovedError("9735 127.0.0.1:7001"),
        errors.AskError("9735 127.0.0.1:7001"),
        errors.TryAgainError("Multiple keys request during rehashing of slot"),
        errors.ClusterDownError("The cluster is down"),
        errors.ResponseError("MOVED 9735 127.0.0.1:7001"),
    ):
        assert classify(error) == "transient", error
    assert "can't do this just now" in one_line(errors.MovedError("9735 h:7001"), "redis+cluster://h")


def test_a_plain_url_of_a_node_is_told_what_finds_the_right_one() -> None:
    told = one_line(errors.MovedError("9735 127.0.0.1:7001"), "redis://127.0.0.1:7000/0")
    assert "use redis+cluster://host:port" in told


def test_nodes_are_made_of_settings() -> None:
    assert nodes_of([A], "rq:{fusion}:", None).slot == SLOT
