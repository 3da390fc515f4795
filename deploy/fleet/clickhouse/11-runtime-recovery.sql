-- How long does a runtime that restarts alone take until the node is as before, by the version that runs since? Of the restarts so
-- many are complete whose beginning was seen and after which the node was as before: half of these took no longer than p50_ns, 99
-- of 100 no longer than p99_ns. The others may have taken longer, or may be going on. A version that is not known is empty.
WITH told AS (
    SELECT ifNull(new_version, '') AS version, ifNull(waited, 0) AS held, ifNull(again, 0) AS failed,
        if(end_seen AND ifNull(close, '') = 'as_before', whole_ns, NULL) AS recovered_ns
    FROM restarts FINAL
    WHERE daemon = 'runtime' AND (started_ns IS NOT NULL OR again > 0)
)
SELECT version, count() AS restarts, count(recovered_ns) AS complete,
    if(complete = 0, NULL, arraySort(groupArray(recovered_ns))[intDiv(complete + 1, 2)]) AS p50_ns,
    if(complete = 0, NULL, arraySort(groupArray(recovered_ns))[intDiv(99 * complete + 99, 100)]) AS p99_ns,
    max(recovered_ns) AS longest_ns, sum(held) AS pods_waited, sum(failed) AS failed_starts
FROM told
GROUP BY version
ORDER BY p99_ns DESC NULLS FIRST, version;
