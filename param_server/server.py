"""The loop of one parameter server: messages in, ``Replica`` decides, messages out."""

from __future__ import annotations

import json

from param_server.replica import Replica
from siafu import checkpoint, models
from siafu.address import COORDINATOR, param_server
from siafu.member import Joined, Presence, answer
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.wire import Heartbeat, Hello, Ready, Start, Stop, Stopped, Welcome


def serve(joined: Joined) -> None:
    """Runs until the coordinator says stop. Raises whatever the replica raises."""
    hub, config, index = joined.hub, joined.config, joined.index
    model = models.build(ModelSpec.of(config, ShardSet.open(joined.shards, ()).manifest))
    first = checkpoint.first_weights(model, config.train.warm_start)
    replica = Replica(index, config, model, config.data.parts, config.data.parts * config.train.intervals, first)
    for peer, endpoint in enumerate(joined.roster.param_servers):
        if peer != index:
            hub.dial(param_server(peer), endpoint)
    hub.send(COORDINATOR, Ready("param_server", index))
    presence = Presence(hub, config, lambda: Heartbeat("param_server", index))
    while True:
        for sender, message in presence.poll(config.servers.heartbeat_s):
            match message:
                case Stop():
                    hub.send(COORDINATOR, Stopped("param_server", index, json.dumps({})))
                    return
                case Hello():
                    hub.send(sender, answer(hub.me, message, config))
                case Heartbeat() | Start() | Welcome():
                    pass
                case _:
                    with hub.forgiving(sender):
                        for action in replica.handle(sender, message):
                            hub.deliver(action.to, action.message)
