-- Budget curve: every sequence at every budget, and the room left under the oracle.
-- Row: a sequence and budget. Inputs: Curves; points.
WITH
cuts AS (
    FROM curves WHERE breakdown = 'all' AND budget IS NOT NULL
),
best AS (
    SELECT budget, turns_touched AS best_turns_touched, turn_characters AS best_turn_characters
    FROM cuts WHERE sequence = 'oracle'
)
SELECT sequence, budget,
    round(COLUMNS([
        'cl100k_base', 'sessions_shown', 'all_shown', 'turns_touched', 'turn_characters', 'evidence_share',
        'answer_in_context'
    ]), 6),
    round(best_turns_touched - turns_touched, 6) AS room_turns_touched,
    round(best_turn_characters - turn_characters, 6) AS room_turn_characters
FROM cuts LEFT JOIN best USING (budget)
ORDER BY (SELECT min(place) FROM points WHERE points.point = cuts.point)
