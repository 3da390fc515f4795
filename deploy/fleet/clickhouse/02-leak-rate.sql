-- How many addresses leak for a million starts, by CNI plugin and its version? A plugin or a version that is not known is empty, as
-- the plugin of leaks is that are told together and come from several; of such there is no rate, nor where no start was seen.
-- Records of which it was not seen how they came about are left out.
WITH seen AS (
    SELECT toString(ifNull(plugin, '')) AS by_plugin, toString(ifNull(plugin_version, '')) AS by_version,
        toInt64(1) AS started, toInt64(0) AS items_leaked, CAST(NULL AS Nullable(String)) AS on_node
    FROM starts FINAL
    UNION ALL
    SELECT toString(ifNull(plugin, '')), toString(ifNull(plugin_version, '')), toInt64(0), toInt64(ifNull(items, 1)),
        CAST(node AS Nullable(String))
    FROM findings FINAL
    WHERE kind = 'leaked_address' AND confirmed_at IS NOT NULL AND ifNull(cause, '') <> 'stale_record'
)
SELECT by_plugin AS plugin, by_version AS version, sum(started) AS starts, sum(items_leaked) AS leaked, uniqExact(on_node) AS nodes,
    if(by_plugin <> '' AND starts > 0, intDiv(leaked * 1000000, greatest(starts, 1)), NULL) AS leaked_per_million
FROM seen
GROUP BY by_plugin, by_version
HAVING by_plugin <> '' OR leaked > 0
ORDER BY leaked_per_million DESC NULLS FIRST, leaked DESC, plugin, version;
