-- Count curve: what is lost when items are removed from the end of the list.
-- Row: a number of items of the sequence items. Inputs: Curves.
SELECT coalesce("count"::VARCHAR, 'all') AS items_shown,
    round(COLUMNS([
        'cl100k_base', 'characters', 'sessions_shown', 'all_shown', 'turns_touched', 'turn_characters',
        'evidence_share', 'answer_in_context'
    ]), 6)
FROM curves
WHERE breakdown = 'all' AND sequence = 'items' AND budget IS NULL
ORDER BY "count" NULLS LAST
