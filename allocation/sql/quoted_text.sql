-- What a context quotes: how much of it comes from answer records, and how early they come.
-- Row: a point. Inputs: Curves; points.
SELECT point,
    round(COLUMNS([
        'cl100k_base', 'items', 'sessions_shown', 'evidence_share', 'turn_characters_per_1k_tokens', 'duplicate_share',
        'first_item_is_answer', 'first_item'
    ]), 6)
FROM curves
WHERE breakdown = 'all'
ORDER BY (SELECT min(place) FROM points WHERE points.point = curves.point)
