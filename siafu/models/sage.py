"""GraphSAGE, mean aggregator (Hamilton et al., NeurIPS 2017, alg. 1):  H' = σ(H W_self + mean(H_u) W_neighbour + b).

    GA:   Z_v = Σ_{u→v} w_uv H_u / Σ w_uv        (0 where v has no in-edge)
    AV:   P = H W_self + Z W_neighbour + b,  H' = drop(σ(P))
    AV':  dP = drop'(dH') ⊙ σ'(P), both dW, db, dS = dP W_selfᵀ (stays with the vertex), dZ = dP W_neighbourᵀ
    GA':  dH_u = dS_u + Σ_{u→v} w_uv dZ_v / Σ w_·v

Shapes: H [n, F_in], Z [n, F_in], W_self and W_neighbour [F_in, F_out]. No L2 normalisation of H', as in PyG's default.
"""

from __future__ import annotations

from siafu.models.layered import Layered, Term


class GraphSAGE(Layered):
    aggregate = "mean"
    terms = (Term("H", "self"), Term("Z", "neighbour"))
