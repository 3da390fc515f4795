-- How many addresses leak for a million starts, by CNI plugin and its version? A plugin or a version that is not known is empty, as
-- the plugin of leaks is that are told together and come from several; of such there is no rate, nor where no start was seen.
-- Records of which it was not seen how they came about are left out.
WITH seen AS (
    SELECT coalesce(plugin, '') AS plugin, coalesce(plugin_version, '') AS version,
        1 AS starts, 0 AS leaked, NULL AS node
    FROM starts
    UNION ALL
    SELECT coalesce(plugin, ''), coalesce(plugin_version, ''), 0, coalesce(items, 1), node
    FROM findings
    WHERE kind = 'leaked_address' AND confirmed_at IS NOT NULL AND coalesce(cause, '') <> 'stale_record'
)
SELECT plugin, version, sum(starts)::BIGINT AS starts, sum(leaked)::BIGINT AS leaked, count(DISTINCT node) AS nodes,
    CASE WHEN plugin <> '' THEN sum(leaked)::BIGINT * 1000000 // nullif(sum(starts)::BIGINT, 0) END AS leaked_per_million
FROM seen
GROUP BY plugin, version
HAVING plugin <> '' OR sum(leaked) > 0
ORDER BY leaked_per_million DESC NULLS FIRST, leaked DESC, plugin, version;
