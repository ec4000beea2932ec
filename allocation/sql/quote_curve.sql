-- Quote curve: what is lost when every quote gets shorter, all items shown.
-- Row: a quote size (of the first five items / of the others). Inputs: Curves.
SELECT if(sequence = 'items', '800/400', regexp_extract(sequence, '@(.*)', 1)) AS quote_size,
    round(COLUMNS([
        'cl100k_base', 'characters', 'sessions_shown', 'all_shown', 'turns_touched', 'turn_characters',
        'evidence_share', 'answer_in_context'
    ]), 6)
FROM curves
WHERE breakdown = 'all' AND sequence LIKE 'items%' AND budget IS NULL AND "count" IS NULL
ORDER BY split_part(quote_size, '/', 1)::INTEGER DESC, split_part(quote_size, '/', 2)::INTEGER DESC
