"""Preparation of a graph that does not fit in memory: sorted on disk, the same bytes
as ``graph_data.prepare`` in memory.

pass            reads                   writes (bytes per edge as listed, undirected, unweighted)
census          the edge list           nothing: ids, a sample
spread          the edge list           16: keys in buckets of neighbouring targets
merge           16                      8: one CSR, rows in vertex order
owners          8 per pass              4 per vertex
deal            8                       8: the rows of each partition
localise        8                       8: the shard
"""
