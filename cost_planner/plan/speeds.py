"""The time that each kind of work takes a core, as ``siafu plan --calibrate`` measures it. Values only."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

#: Of ``Speeds``: what is no processor's time.
WALLS = ("hop_s", "wake_s", "usable", "usable_among", "throttled")
#: Tensor tasks of an environment, all but products: those take as long with cool caches.
COOLED = ("read_ns", "element_ns", "tensor_s", "lambda_task_s", "lambda_byte_ns", "lambda_io_s", "lambda_io_byte_ns")


@dataclass(frozen=True)
class Speeds:
    """Processor time of everything that is done, of one core. Every step's time is linear in these, which is how they
    are measured (``cost_planner.plan.calibrate``). The defaults are what ``siafu plan --calibrate`` found on the
    developers' machine, 2 cores of an AMD EPYC."""

    # A server's graph threads.
    task_s: float = 6.4e-05  # for every graph task
    value_ns: float = 0.0575  # gather: for a column of an edge
    missed_ns: float = 0.0  # and of one whose row the core's own cache does not hold
    score_ns: float = 1.22  # attention: and for each head of an edge
    copy_ns: float = 0.26  # scatter: for a value that is copied
    # A server's main and I/O threads.
    main_task_s: float = 0.000205  # for every task
    main_tensor_s: float = 0.000144  # and for one that goes to an environment and comes back
    main_byte_ns: float = 0.192  # of what is sent or received
    io_message_s: float = 2.5e-05
    io_byte_ns: float = 0.179
    # Tensor tasks, wherever they are computed.
    flop_ns: float = 0.00906  # products: for an addition or a multiplication
    word_ns: float = 0.0602  # products with a row's stored values: for a value and column of the result
    word_back_ns: float = 0.125  # and transposed
    read_ns: float = 0.295  # for a value that is read
    element_ns: float = 1.04  # for a value that is made
    tensor_s: float = 0.000323  # for every task
    # And in an environment.
    lambda_task_s: float = 0.000246
    lambda_byte_ns: float = 0.474
    lambda_io_s: float = 9.84e-05  # of its I/O thread, for every task
    lambda_io_byte_ns: float = 0.225
    # Parameter servers.
    exchange_s: float = 0.000171  # for a request, or a gradient
    exchange_byte_ns: float = 1.27
    update_s: float = 0.00102  # once per epoch
    update_byte_ns: float = 2.72  # of weights
    # No processor's time: from one process to another on this machine.
    hop_s: float = 0.0001
    wake_s: float = 0.0  # from one thread of a server to another
    #: Of one machine's processors that all processes of a run share: what is left of each for their work.
    usable: float = 0.9
    #: And where several servers, or environments, compute at a time.
    usable_among: float = 0.85
    #: Of an environment that computes for a part of the time: its speed in all but products, beside one that never has
    #: to wait. Its caches have cooled whenever it goes on.
    throttled: float = 1.0

    def of_throttled(self) -> Speeds:
        """Speeds of environments that compute for only a part of the time."""
        return replace(self, **{name: getattr(self, name) / self.throttled for name in COOLED})

    def scaled(self, factor: float) -> Speeds:
        """Speeds of a core that takes ``factor`` times as long."""
        return replace(
            self, **{one.name: getattr(self, one.name) * factor for one in fields(self) if one.name not in WALLS}
        )
