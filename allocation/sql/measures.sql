-- Every metric of every question and point as a fraction of whole numbers, so that a rate over any questions is
-- sum(part) / sum(whole): one division of two exact sums. Where a rate is a mean over questions, a question's own
-- fraction is rounded to billionths (part) of a billion (whole); where it is pooled, part and whole are its counts.
-- Row: question_id, point, metric, part, whole (0: the question does not have the metric). Inputs: Points; Metrics.
WITH
counts AS (
    SELECT *, answer_records > 0 AS labelled FROM points JOIN metrics USING (question_id, point)
),
fractions AS (
    SELECT question_id, point, unnest([
        -- Means over questions.
        {metric: 'sessions_shown', per_question: true, part: answer_records_shown, whole: answer_records},
        {metric: 'all_shown', per_question: true,
            part: (labelled AND answer_records_shown = answer_records)::BIGINT, whole: labelled::BIGINT},
        {metric: 'turns_touched', per_question: true, part: turns_in_part + turns_whole, whole: turns},
        {metric: 'turn_characters', per_question: true, part: turn_characters_shown, whole: turn_characters},
        {metric: 'answer_in_context', per_question: true,
            part: coalesce(answer_in_context, false)::BIGINT, whole: (answer_in_context IS NOT NULL)::BIGINT},
        {metric: 'first_item_is_answer', per_question: true,
            part: coalesce(first_item = 0, false)::BIGINT, whole: labelled::BIGINT},
        -- Pooled over questions.
        {metric: 'evidence_share', per_question: false,
            part: if(labelled, answer_record_characters, 0), whole: if(labelled, quoted_characters, 0)},
        {metric: 'turn_characters_per_1k_tokens', per_question: false,
            part: 1000 * turn_characters_shown, whole: if(turns > 0, cl100k_base, 0)},
        {metric: 'duplicate_share', per_question: false, part: repeated_characters, whole: quoted_characters},
        {metric: 'first_item', per_question: false,
            part: coalesce(first_item, 0), whole: (first_item IS NOT NULL)::BIGINT},
        {metric: 'turns_not_recalled', per_question: false, part: turns_not_recalled, whole: turns},
        {metric: 'turns_not_quoted', per_question: false, part: turns_not_quoted, whole: turns},
        {metric: 'turns_outside', per_question: false, part: turns_outside, whole: turns},
        {metric: 'turns_in_part', per_question: false, part: turns_in_part, whole: turns},
        {metric: 'turns_whole', per_question: false, part: turns_whole, whole: turns},
        -- Sizes, means over questions.
        {metric: 'characters', per_question: false, part: characters, whole: 1},
        {metric: 'items', per_question: false, part: items, whole: 1},
        {metric: 'passages', per_question: false, part: passages, whole: 1},
        {metric: 'omitted', per_question: false, part: omitted, whole: 1},
        {metric: 'cl100k_base', per_question: false, part: cl100k_base, whole: 1},
        {metric: 'o200k_base', per_question: false, part: o200k_base, whole: 1}
    ], recursive := true)
    FROM counts
)
SELECT question_id, point, metric,
    CASE
        WHEN NOT per_question THEN part
        WHEN whole = 0 THEN 0
        ELSE (2000000000 * part + whole) // (2 * whole)
    END AS part,
    if(per_question AND whole > 0, 1000000000, whole)::BIGINT AS whole
FROM fractions
