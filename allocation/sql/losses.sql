-- Where a shorter quote loses the evidence: what became of the evidence turns.
-- Row: a point; the five shares add up to 1. Inputs: Curves; points.
SELECT point,
    round(COLUMNS([
        'cl100k_base', 'turns_whole', 'turns_in_part', 'turns_outside', 'turns_not_quoted', 'turns_not_recalled'
    ]), 6)
FROM curves
WHERE breakdown = 'all'
ORDER BY (SELECT min(place) FROM points WHERE points.point = curves.point)
