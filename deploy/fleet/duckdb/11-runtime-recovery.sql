-- How long does a runtime that restarts alone take until the node is as before, by the version that runs since? Of the restarts so
-- many are complete whose beginning was seen and after which the node was as before: half of these took no longer than p50_ns, 99
-- of 100 no longer than p99_ns. The others may have taken longer, or may be going on. A version that is not known is empty.
WITH told AS (
    SELECT coalesce(new_version, '') AS version, coalesce(waited, 0) AS held, coalesce(again, 0) AS failed,
        CASE WHEN end_seen AND close = 'as_before' THEN whole_ns END AS recovered_ns
    FROM restarts
    WHERE daemon = 'runtime' AND (started_ns IS NOT NULL OR again > 0)
)
SELECT version, count(*) AS restarts, count(recovered_ns) AS complete, quantile_disc(recovered_ns, 0.50) AS p50_ns,
    quantile_disc(recovered_ns, 0.99) AS p99_ns, max(recovered_ns) AS longest_ns, sum(held)::BIGINT AS pods_waited,
    sum(failed)::BIGINT AS failed_starts
FROM told
GROUP BY version
ORDER BY p99_ns DESC NULLS FIRST, version;
