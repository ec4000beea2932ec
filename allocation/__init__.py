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
server     the memory server's own cosines and passages, policy ``server``
========== ==================================================================

What the sequences show is the second chain, ``curves``:

========== ==================================================================
points     names -> points: where sequences are cut
contexts   sequence + points -> the texts an answering model would read
tokens     text -> tokens
gold       context -> whether it shows the gold answer
queries    tables -> metrics, curves, instruments: the SQL of ``sql/``
charts     instruments -> charts
browse     sequences -> the question browser of the report
render     one question's sequence at a budget, as data
bootstrap  two sides -> the interval of their difference
========== ==================================================================

And what is concluded from it:

========== ==================================================================
splits     questions -> development and test
sweep      a grid of settings -> what each gains
answers    graded answers + points -> answers tied to their contexts
rules      TOML -> rule
judging    rule + answers -> verdict
========== ==================================================================

What both start from may have to be made first:

========== ==================================================================
datasets   a benchmark's entry -> records, questions, evidence
traces     a server's answer -> window rows, recorded parts
recall     questions + records -> windows
========== ==================================================================

``tables`` declares every table, ``inputs`` judges their rows, ``settings`` holds what can be chosen, ``text``
cuts and lowers texts in bulk, ``runs`` finds runs of equal values, ``run_records`` tells whether a store's texts are
still a run's. Nothing here knows a path, a clock or a screen.
"""
