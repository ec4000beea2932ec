"""Passages in the order they should be spent.

Start with ``chain``; its steps in flow order:

========== ==================================================================
block_sets records -> blocks: the current block set, or a division
divide     a text -> the spans of its blocks
ranges     block -> governing range
passages   governing ranges -> passages, overlaps merged
similarity question x block -> shared trigrams, cosine key
ranks      block order in a record; record, inside and cosine rank
fusion     ranks -> fused order
steps      fused order -> the other passage orders
parts      question -> its parts, and which passages hold them
coverage   order + parts -> covered order
quotes     today's sequence: head quotes and excerpts
costs      order -> cost
render     sequence + budget -> what an answering model would see
server     the memory server's own cosines and passages, policy ``server``
========== ==================================================================

``tables`` declares every table, ``inputs`` judges their rows, ``settings`` holds what can be chosen, ``text``
cuts and lowers texts in bulk, ``runs`` finds runs of equal values. Nothing here knows a path, a clock or a screen.
"""
