"""Convolutions of PyTorch Geometric, as they are. They add loops of a vertex to itself where they need those."""

from __future__ import annotations

from torch_geometric.nn import APPNP, GATConv, GCN2Conv, GCNConv, GINConv, RGCNConv, SAGEConv, SGConv

__all__ = ["APPNP", "GATConv", "GCN2Conv", "GCNConv", "GINConv", "RGCNConv", "SAGEConv", "SGConv"]
