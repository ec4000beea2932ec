-- What each point shows of a question's evidence, in records, turns and characters.
-- Row: a question and point (Metrics). Inputs: Points; shown (question_id, point, item_position, claim_position,
-- record_ref, start, end: the ranges a point takes); Evidence; Windows; repeats (record_ref, start, end, text_id: the
-- blocks whose text other blocks have too); gold (question_id, point, answer_in_context).
WITH
answer_records AS (
    SELECT DISTINCT question_id, record_ref FROM evidence
),
-- Each turn once, with the characters no earlier turn of its record has: from own_start on.
turns AS (
    SELECT question_id, record_ref, start, "end",
        least("end", greatest(start, coalesce(max("end") OVER earlier, 0))) AS own_start
    FROM (SELECT DISTINCT question_id, record_ref, start, "end" FROM evidence WHERE start IS NOT NULL)
    WINDOW earlier AS (
        PARTITION BY question_id, record_ref ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
quoted_records AS (
    SELECT question_id, point, record_ref, min(item_position) AS item_position, sum("end" - start) AS characters
    FROM shown GROUP BY ALL
),
quoted AS (
    SELECT question_id, point, sum(characters) AS characters,
        count(answer.record_ref) AS answer_records,
        coalesce(sum(characters) FILTER (answer.record_ref IS NOT NULL), 0) AS answer_record_characters,
        min(item_position) FILTER (answer.record_ref IS NOT NULL) AS first_item
    FROM quoted_records LEFT JOIN answer_records AS answer USING (question_id, record_ref)
    GROUP BY question_id, point
),
touched AS (
    SELECT turns.question_id, turns.record_ref, turns.start, turns."end", point,
        sum(least(shown."end", turns."end") - greatest(shown.start, turns.start)) AS characters,
        sum(greatest(0, least(shown."end", turns."end") - greatest(shown.start, own_start))) AS own_characters
    FROM shown JOIN turns ON shown.question_id = turns.question_id AND shown.record_ref = turns.record_ref
        AND shown.start < turns."end" AND turns.start < shown."end"
    GROUP BY ALL
),
-- What became of every turn at every point.
fates AS (
    SELECT turns.question_id, points.point, turns."end" - own_start AS characters,
        coalesce(own_characters, 0) AS characters_shown,
        CASE
            WHEN touched.characters = turns."end" - turns.start THEN 'whole'
            WHEN touched.characters > 0 THEN 'in part'
            WHEN quoted_records.record_ref IS NOT NULL THEN 'outside'
            WHEN recalled.record_ref IS NOT NULL THEN 'not quoted'
            ELSE 'not recalled'
        END AS fate
    FROM points
    JOIN turns USING (question_id)
    LEFT JOIN touched ON touched.question_id = turns.question_id AND touched.point = points.point
        AND touched.record_ref = turns.record_ref AND touched.start = turns.start AND touched."end" = turns."end"
    LEFT JOIN quoted_records ON quoted_records.question_id = turns.question_id
        AND quoted_records.point = points.point AND quoted_records.record_ref = turns.record_ref
    LEFT JOIN (SELECT DISTINCT question_id, record_ref FROM windows) AS recalled
        ON recalled.question_id = turns.question_id AND recalled.record_ref = turns.record_ref
),
turn_counts AS (
    SELECT question_id, point, count(*) AS turns, sum(characters) AS turn_characters,
        sum(characters_shown) AS turn_characters_shown,
        count(*) FILTER (fate = 'not recalled') AS turns_not_recalled,
        count(*) FILTER (fate = 'not quoted') AS turns_not_quoted,
        count(*) FILTER (fate = 'outside') AS turns_outside,
        count(*) FILTER (fate = 'in part') AS turns_in_part,
        count(*) FILTER (fate = 'whole') AS turns_whole
    FROM fates GROUP BY question_id, point
),
-- Of the blocks with one text that a context quotes, the first is no repetition.
block_quotes AS (
    SELECT question_id, point, text_id, item_position, claim_position, repeats.start,
        sum(least(shown."end", repeats."end") - greatest(shown.start, repeats.start)) AS characters
    FROM shown JOIN repeats ON shown.record_ref = repeats.record_ref
        AND shown.start < repeats."end" AND repeats.start < shown."end"
    GROUP BY ALL
),
repeated AS (
    SELECT question_id, point, sum(characters) AS characters
    FROM (
        FROM block_quotes
        QUALIFY row_number() OVER (
            PARTITION BY question_id, point, text_id ORDER BY item_position, claim_position, start
        ) > 1
    )
    GROUP BY question_id, point
),
labelled AS (
    SELECT question_id, count(*) AS answer_records FROM answer_records GROUP BY question_id
)
SELECT points.question_id, points.point,
    coalesce(labelled.answer_records, 0) AS answer_records,
    coalesce(quoted.answer_records, 0) AS answer_records_shown,
    coalesce(turns, 0) AS turns,
    coalesce(turns_not_recalled, 0) AS turns_not_recalled,
    coalesce(turns_not_quoted, 0) AS turns_not_quoted,
    coalesce(turns_outside, 0) AS turns_outside,
    coalesce(turns_in_part, 0) AS turns_in_part,
    coalesce(turns_whole, 0) AS turns_whole,
    coalesce(turn_characters, 0)::BIGINT AS turn_characters,
    coalesce(turn_characters_shown, 0)::BIGINT AS turn_characters_shown,
    coalesce(quoted.characters, 0)::BIGINT AS quoted_characters,
    coalesce(answer_record_characters, 0)::BIGINT AS answer_record_characters,
    coalesce(repeated.characters, 0)::BIGINT AS repeated_characters,
    first_item,
    answer_in_context
FROM points
LEFT JOIN labelled USING (question_id)
LEFT JOIN quoted USING (question_id, point)
LEFT JOIN turn_counts USING (question_id, point)
LEFT JOIN repeated USING (question_id, point)
LEFT JOIN gold USING (question_id, point)
ORDER BY points.question_id, points.place
