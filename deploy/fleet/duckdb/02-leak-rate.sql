-- How many addresses leak for a million starts, by CNI plugin and its version? A version that is not known is empty.
WITH leaks AS (
    SELECT plugin, coalesce(plugin_version, '') AS version,
        sum(coalesce(items, 1)) AS leaked, count(DISTINCT node) AS nodes
    FROM findings
    WHERE kind = 'leaked_address' AND confirmed_at IS NOT NULL
    GROUP BY ALL
), made AS (
    SELECT plugin, coalesce(plugin_version, '') AS version, count(*) AS starts
    FROM starts
    GROUP BY ALL
)
SELECT made.plugin, made.version, starts, coalesce(leaked, 0)::BIGINT AS leaked, coalesce(nodes, 0) AS nodes,
    (coalesce(leaked, 0)::BIGINT * 1000000) // starts AS leaked_per_million
FROM made LEFT JOIN leaks ON leaks.plugin = made.plugin AND leaks.version = made.version
WHERE made.plugin IS NOT NULL
ORDER BY leaked_per_million DESC, made.plugin, made.version;
