"""The main loop of a parameter server: ``Replica`` decides which messages to send."""

from __future__ import annotations

import json
import logging
from collections import deque

from param_server.replica import Replica
from siafu import model_file, models
from siafu.address import COORDINATOR, Address, param_server
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.member import Joined, Presence, answer
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sockets import Hub
from siafu.wire import Failed, GetState, Heartbeat, Hello, Message, Ready, Start, Stop, Stopped, Welcome

logger = logging.getLogger(__name__)


def serve(joined: Joined) -> None:
    """Runs until the coordinator sends Stop. Raises the replica's errors, and PeerLost if the coordinator is lost."""
    hub, config, index = joined.hub, joined.config, joined.index
    model = models.build(ModelSpec.of(config, ShardSet.open(joined.shards, ()).manifest))
    first = model_file.first_weights(model, config.train.warm_start)
    replica = Replica(index, config, model, config.data.parts, config.data.parts * config.train.intervals, first)
    hub.worker_bytes = (1 << 20) + 2 * sum(W.nbytes for W in first.values())  # a gradient has at most what weights have
    for peer, endpoint in enumerate(joined.roster.param_servers):
        if peer != index:
            hub.dial(param_server(peer), endpoint)
    hub.send(COORDINATOR, Ready("param_server", index))
    presence = Presence(hub, config, lambda: Heartbeat("param_server", index))
    unread: deque[tuple[Address, Message]] = deque()
    while True:
        try:
            unread += presence.poll(config.servers.heartbeat_s)
            while unread:
                sender, message = unread.popleft()
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
        except PeerLost as lost:
            if presence.orphaned:
                raise
            logger.warning("%s", lost)
            hub.send(COORDINATOR, Failed("param_server", index, type(lost).__name__, str(lost), ""))
            hub.put_back(unread)  # the coordinator may have asked already
            _outlast(hub, config, replica, presence)
            return


def _outlast(hub: Hub, config: Config, replica: Replica, presence: Presence) -> None:
    """Keeps the weights for the next attempt of the run, after this one has failed, until the coordinator sends
    Stop."""
    presence.forget_peers()
    while True:
        try:
            arrived = presence.poll(config.servers.heartbeat_s)
        except PeerLost:
            if presence.orphaned:
                raise
            continue
        for sender, message in arrived:
            if sender == COORDINATOR and isinstance(message, Stop):
                return
            if sender == COORDINATOR and isinstance(message, GetState):
                hub.send(COORDINATOR, replica.state())
