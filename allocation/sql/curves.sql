-- Every metric of every point over all questions, over each question type and over each split.
-- Row: point, breakdown, value (Curves); a metric no question of the group has is null. Inputs: Points; Metrics; Questions;
-- measures.
WITH
groups AS (
    SELECT question_id, unnest([
        {breakdown: 'all', value: 'all'},
        {breakdown: 'question_type', value: coalesce(question_type, '(none)')},
        {breakdown: 'split', value: coalesce(split, '(none)')}
    ], recursive := true)
    FROM questions
),
cuts AS (
    SELECT point, min(place) AS place, any_value(sequence) AS sequence, any_value(budget) AS budget,
        any_value("count") AS "count"
    FROM points GROUP BY point
),
sizes AS (
    SELECT point, breakdown, value, count(*) AS questions, count(*) FILTER (answer_records > 0) AS labelled
    FROM metrics JOIN groups USING (question_id) GROUP BY ALL
),
rates AS (
    SELECT point, breakdown, value, metric, sum(part) / nullif(sum(whole), 0) AS rate
    FROM measures JOIN groups USING (question_id) GROUP BY ALL
),
wide AS (
    PIVOT rates
    ON metric IN (
        'sessions_shown', 'all_shown', 'turns_touched', 'turn_characters', 'evidence_share',
        'turn_characters_per_1k_tokens', 'duplicate_share', 'answer_in_context', 'first_item_is_answer', 'first_item',
        'turns_not_recalled', 'turns_not_quoted', 'turns_outside', 'turns_in_part', 'turns_whole', 'characters',
        'items', 'passages', 'omitted', 'cl100k_base', 'o200k_base'
    )
    USING any_value(rate)
)
SELECT point, breakdown, value, sequence, budget, "count", questions, labelled, wide.* EXCLUDE (point, breakdown, value)
FROM sizes JOIN cuts USING (point) JOIN wide USING (point, breakdown, value)
ORDER BY breakdown, value, place
