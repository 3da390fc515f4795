-- How many sandboxes that nobody needed come for a million starts, by runtime version and form? A runtime that is not known is
-- empty.
WITH made AS (
    SELECT ifNull(runtime, '') AS runtime_version, count() AS starts
    FROM starts FINAL
    GROUP BY runtime_version
), duplicates AS (
    SELECT ifNull(runtime, '') AS runtime_version, cause AS form, toInt64(sum(ifNull(items, 1))) AS duplicates
    FROM findings FINAL
    WHERE kind = 'duplicate_sandbox' AND confirmed_at IS NOT NULL
    GROUP BY runtime_version, form
)
SELECT runtime_version, form, starts, duplicates, intDiv(duplicates * 1000000, starts) AS duplicates_per_million
FROM duplicates JOIN made USING (runtime_version)
ORDER BY duplicates_per_million DESC, runtime_version, form;
