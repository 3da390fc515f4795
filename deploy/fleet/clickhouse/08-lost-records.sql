-- Which agents lost records, where, how many and how often, and when last (last_ns, since the epoch)? What such an agent did not
-- see may have happened all the same.
WITH gaps AS (
    SELECT DISTINCT node, boot_id, boot_ns, seq, gap, lost AS records, toUnixTimestamp64Nano(ts) AS at_ns
    FROM events
    WHERE event = 'gap' AND gap NOT IN ('no_agent', 'state') AND lost > 0
)
SELECT node, gap, count() AS gaps, sum(records) AS lost, max(at_ns) AS last_ns
FROM gaps
GROUP BY node, gap
ORDER BY lost DESC, node, gap;
