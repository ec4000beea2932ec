-- Every question type at every point.
-- Row: a point and type. Inputs: Curves; points.
SELECT value AS question_type, point, sequence, budget, "count", questions, labelled,
    round(COLUMNS([
        'cl100k_base', 'sessions_shown', 'all_shown', 'turns_touched', 'turn_characters', 'evidence_share',
        'answer_in_context'
    ]), 6)
FROM curves
WHERE breakdown = 'question_type'
ORDER BY question_type, (SELECT min(place) FROM points WHERE points.point = curves.point)
