"""Graph convolution (Kipf & Welling, ICLR 2017, eq. 2):  H' = σ(Â H W + b),  Â = D̃^-1/2 (A + I) D̃^-1/2.

    GA:   Z = Â H                       graph work (``graph_server.aggregate``)
    AV:   P = Z W + b,  H' = drop(σ(P))
    AV':  dP = drop'(dH') ⊙ σ'(P),  dW = Zᵀ dP,  db = Σ dP,  dZ = dP Wᵀ
    GA':  dH = Âᵀ dZ                    along reversed edges

Shapes: H [N, F_in], Z [n, F_in], W [F_in, F_out], P and H' [n, F_out].
"""

from __future__ import annotations

from siafu.models.layered import Layered, Term


class GCN(Layered):
    aggregate = "gcn"
    takes = Layered.takes | {"residual"}
    terms = (Term("Z", "weight"),)

    def rest(self, parameter: str) -> bool:
        """Whether the parameter is not of layer 0: the authors' code decays only the first layer."""
        return not parameter.startswith("0.")
