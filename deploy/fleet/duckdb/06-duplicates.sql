-- How many sandboxes that nobody needed come for a million starts, by runtime version and form? A runtime that is not known is
-- empty.
WITH made AS (
    SELECT coalesce(runtime, '') AS runtime_version, count(*) AS starts
    FROM starts
    GROUP BY ALL
), duplicates AS (
    SELECT coalesce(runtime, '') AS runtime_version, cause AS form, sum(coalesce(items, 1))::BIGINT AS duplicates
    FROM findings
    WHERE kind = 'duplicate_sandbox' AND confirmed_at IS NOT NULL
    GROUP BY ALL
)
SELECT runtime_version, form, starts, duplicates, duplicates * 1000000 // starts AS duplicates_per_million
FROM duplicates JOIN made USING (runtime_version)
ORDER BY duplicates_per_million DESC, runtime_version, form;
