"""What `doctor` says of a cluster."""

from __future__ import annotations

import re

import pytest
import redis

from fusion.doctor.checks import server
from fusion.doctor.look import Look
from fusion.doctor.verdict import examine
from fusion.settings import Settings, get_settings
from fusion.store.client.connections import connect
from fusion.store.layout.acl import acl_rules
from tests.kit.clusters import PREFIX, ClusterOfTests
from tests.kit.servers import free_port


def codes(look: Look) -> list[tuple[str, str]]:
    return [(one.code, one.about) for check in (server.server, server.nodes) for one in check(look)]


def test_a_cluster_is_fine(cluster: ClusterOfTests) -> None:
    look = Look(connect(), get_settings())
    assert codes(look) == []
    assert look.redis_cli == f"redis-cli -c -h 127.0.0.1 -p {cluster.owner.port}"


def test_a_prefix_without_a_tag_and_a_plain_url(cluster: ClusterOfTests) -> None:
    conn = connect(cluster.owner.server.url)
    assert codes(Look(conn, Settings(redis_url=cluster.owner.server.url))) == [("FUS-402", "")]
    assert codes(Look(conn, Settings(redis_url=cluster.owner.server.url, prefix="rq:{fusion}:"))) == [("FUS-427", "")]


def test_a_node_that_can_not_be_reached_is_named(cluster: ClusterOfTests) -> None:
    there = f"127.0.0.1:{cluster.other(cluster.owner).port}"
    nowhere = f"127.0.0.1:{free_port()}"
    settings = Settings(redis_url=f"redis+cluster://127.0.0.1:{cluster.owner.port}", cluster_nat={there: nowhere})
    look = Look(connect(settings), settings)
    assert codes(look) == [("FUS-428", nowhere)]
    (found,) = server.nodes(look)
    assert nowhere in found.what
    assert "FUSION_CLUSTER_NAT" in found.fix


def test_a_user_who_may_not_read_settings_lacks_nothing(cluster: ClusterOfTests) -> None:
    """As on managed clusters, which forbid CONFIG to everybody."""
    for node in cluster.nodes:
        terms = re.findall(r"\([^)]*\)|\S+", acl_rules(PREFIX, server=cluster.major))
        node.client.execute_command("ACL", "SETUSER", "ann", "reset", "on", ">pw", *terms)
    conn = connect(f"redis+cluster://ann:pw@{cluster.url.partition('//')[2]}")
    with pytest.raises(redis.RedisError):
        conn.config_get("maxmemory")
    found = {one.code: one.what for one in examine(Look(conn, get_settings()))}
    assert found.keys().isdisjoint({"FUS-414", "FUS-418", "FUS-402", "FUS-427", "FUS-428"}), found
