"""The loop of one parameter server: messages in, ``Replica`` decides, messages out."""

from __future__ import annotations

import json
import logging

from param_server.replica import Replica
from siafu import models
from siafu.address import COORDINATOR, param_server
from siafu.config import Config
from siafu.member import Joined, Presence
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.wire import Heartbeat, Hello, Ready, Refused, Start, Stop, Stopped, Welcome

logger = logging.getLogger(__name__)


def serve(joined: Joined) -> None:
    """Runs until the coordinator says stop. Raises whatever the replica raises."""
    hub, config, index = joined.hub, joined.config, joined.index
    model = models.build(ModelSpec.of(config, ShardSet.open(joined.shards).manifest))
    replica = Replica(index, config, model, config.data.parts, config.data.parts * config.train.intervals)
    for peer, endpoint in enumerate(joined.roster.param_servers):
        if peer != index:
            hub.dial(param_server(peer), endpoint)
    hub.send(COORDINATOR, Ready("param_server", index))
    presence = Presence(hub, config, lambda: Heartbeat("param_server", index))
    while True:
        for sender, message in hub.poll(config.servers.heartbeat_s):
            presence.note(sender)
            match message:
                case Stop():
                    hub.send(COORDINATOR, Stopped("param_server", index, json.dumps({})))
                    return
                case Hello():
                    hub.send(sender, _answer(message, config))
                case Heartbeat() | Start() | Welcome():
                    pass
                case _:
                    for action in replica.handle(sender, message):
                        hub.send(action.to, action.message)
        presence.beat()


def _answer(hello: Hello, config: Config) -> Welcome | Refused:
    if hello.config_digest != config.digest:
        return Refused(f"{hello.role} {hello.index} has config {hello.config_digest}, the run has {config.digest}")
    return Welcome("param_server", 0)
