"""Profiles of the gossip, and single values of them: the keys are all values of the core, and their text tells the defaults."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest

from broker.config.durations import format_duration
from broker.config.loader import load_bytes
from broker.config.schema import keys_of
from broker.config.setting import Duration
from federation.gossip.config import LAN, LOCAL, WAN, GossipConfig
from federation.gossip.suspicion import suspicion_timeout
from federation.gossip_settings import PROFILES, GossipSettings
from federation.serf.config import SerfConfig
from federation.serf.events import MemberStatus
from federation.settings import FederationSettings
from simulator.serf_process import SerfProcess
from simulator.world import Host, World


def settings_of(federation: str) -> FederationSettings:
    text = f"plugin_order: [federation]\nplugins:\n  federation: {{node_name: n1, {federation}}}\n"
    found = load_bytes(text.encode(), "a.yml")
    assert found.settings is not None, found.faults
    section = found.settings.plugins.federation
    assert isinstance(section, FederationSettings)
    return section


def config_of(federation: str) -> GossipConfig:
    section = settings_of(federation)
    return section.gossip.config(section.gossip_profile, section.gossip_cidrs_allowed)


def test_every_value_is_a_key() -> None:
    assert [each.name for each in fields(GossipSettings)] == [
        each.name for each in fields(GossipConfig) if each.name != "networks"
    ]


@pytest.mark.parametrize("key", keys_of(GossipSettings), ids=lambda key: key.name)
def test_the_text_of_each_key_has_the_values_of_the_profiles(key: object) -> None:
    name, setting = key.name, key.setting  # type: ignore[attr-defined]
    values = {word: getattr(config, name) for word, config in PROFILES.items()}
    shown = {
        word: format_duration(value) if isinstance(setting.kind, Duration) else str(value).lower()
        for word, value in values.items()
    }
    differ = len(set(shown.values())) > 1
    expected = ", ".join(f"{word} {text}" for word, text in shown.items()) if differ else shown["lan"]
    assert setting.default_text == expected


@pytest.mark.parametrize(("name", "config"), [("lan", LAN), ("wan", WAN), ("local", LOCAL)])
def test_profiles(name: str, config: GossipConfig) -> None:
    found = config_of(f"gossip_profile: {name}")
    assert {each.name: getattr(found, each.name) for each in fields(config) if each.name != "networks"} == {
        each.name: getattr(config, each.name) for each in fields(config) if each.name != "networks"
    }


def test_single_values() -> None:
    found = config_of("gossip_profile: wan, gossip: {probe_interval: 4s, indirect_checks: 0, packet_bytes_max: 8000}")
    assert (found.probe_interval, found.indirect_checks, found.packet_bytes_max) == (4.0, 0, 8000)
    assert found.probe_timeout == WAN.probe_timeout
    assert config_of("gossip_cidrs_allowed: [10.0.0.0/8]").networks.allow("10.0.0.1")
    assert not config_of("gossip_cidrs_allowed: [10.0.0.0/8]").networks.allow("11.0.0.1")


@pytest.mark.parametrize(
    ("federation", "key"),
    [
        ("gossip: {probe_interval: 200ms}", "gossip.probe_timeout"),
        ("gossip_profile: wan, gossip: {probe_timeout: 6s}", "gossip.probe_timeout"),
        ("gossip: {probe_interval: 1ms}", "gossip.probe_interval"),
        ("gossip: {packet_bytes_max: 100}", "gossip.packet_bytes_max"),
        ("gossip: {networks: all}", "gossip.networks"),
        ("gossip_profile: moon", "gossip_profile"),
    ],
)
def test_values_that_cannot_be(federation: str, key: str) -> None:
    text = f"plugin_order: [federation]\nplugins:\n  federation: {{node_name: n1, {federation}}}\n"
    assert [fault.key for fault in load_bytes(text.encode(), "a.yml").faults] == [f"plugins.federation.{key}"]


@pytest.mark.parametrize("name", PROFILES)
def test_a_crash_is_noticed_in_the_time_of_the_profile(name: str) -> None:
    profile = PROFILES[name]
    world = World(1)
    hosts: list[Host] = []
    for number in range(1, 5):
        ip = f"10.0.0.{number}"
        config = SerfConfig(f"n{number}", ip, 8902, profile=profile, encrypt_keys=(Random(1).randbytes(32),))
        seeds = [("10.0.0.1", 8902)] if number > 1 else []
        hosts.append(
            world.add_host(f"n{number}", ip, lambda host, config=config, seeds=seeds: SerfProcess(host, config, seeds))  # type: ignore[misc]
        )
        hosts[-1].start()

    def seen(status: MemberStatus) -> bool:
        for host in hosts[:3]:
            assert isinstance(host.process, SerfProcess)
            member = host.process.serf.member("n4")
            if member is None or member.status != status:
                return False
        return True

    world.run_until(lambda: seen(MemberStatus.ALIVE), 10.0, "all see the node")
    hosts[3].crash()
    shortest = suspicion_timeout(profile.suspicion_mult, 4, profile.probe_interval)
    probed = 6 * profile.probe_interval
    took = world.run_until(lambda: seen(MemberStatus.FAILED), 6 * shortest + probed, "all see its failure")
    assert took >= shortest
