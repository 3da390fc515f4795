-- How many addresses leak for a million starts, by CNI plugin and its version? A version that is not known is empty.
WITH leaks AS (
    SELECT plugin, ifNull(plugin_version, '') AS version,
        sum(ifNull(items, 1)) AS leaked, uniqExact(node) AS nodes
    FROM findings FINAL
    WHERE kind = 'leaked_address' AND confirmed_at IS NOT NULL
    GROUP BY plugin, version
), made AS (
    SELECT plugin, ifNull(plugin_version, '') AS version, count() AS starts
    FROM starts FINAL
    GROUP BY plugin, version
)
SELECT made.plugin AS plugin, made.version AS version, starts, toInt64(ifNull(leaked, 0)) AS leaked,
    ifNull(nodes, 0) AS nodes, intDiv(leaked * 1000000, starts) AS leaked_per_million
FROM made LEFT JOIN leaks ON leaks.plugin = made.plugin AND leaks.version = made.version
WHERE made.plugin IS NOT NULL
ORDER BY leaked_per_million DESC, plugin, version;
