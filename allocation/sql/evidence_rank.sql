-- Where the evidence ranks inside its record: the best place of a passage that overlaps an evidence turn, of the turns
-- whose record is in the window.
-- Row: a place among the record's passages, best 0. Inputs: sequences (evidence); Evidence.
WITH
turns AS (
    SELECT DISTINCT question_id, record_ref, start, "end" FROM evidence WHERE start IS NOT NULL
),
reached AS (
    SELECT turns.question_id, turns.record_ref, turns.start, turns."end", min(inside_rank) AS inside_rank
    FROM sequences JOIN turns ON sequences.question_id = turns.question_id AND sequences.record_ref = turns.record_ref
        AND sequences.start < turns."end" AND turns.start < sequences."end"
    WHERE sequence = 'evidence' AND basis = 'passage'
    GROUP BY ALL
),
classes AS (
    SELECT unnest([
        {place: 0, low: 0, high: 0, inside_rank: 'best'},
        {place: 1, low: 1, high: 1, inside_rank: 'second'},
        {place: 2, low: 2, high: 2, inside_rank: 'third'},
        {place: 3, low: 3, high: 4, inside_rank: 'fourth or fifth'},
        {place: 4, low: 5, high: 2147483647, inside_rank: 'later'}
    ], recursive := true)
)
SELECT classes.inside_rank, count(reached.inside_rank) AS turns,
    round(count(reached.inside_rank) / nullif((SELECT count(*) FROM reached), 0), 6) AS share
FROM classes LEFT JOIN reached ON reached.inside_rank BETWEEN low AND high
GROUP BY place, classes.inside_rank
ORDER BY place
