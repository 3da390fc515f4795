-- Which nodes have a pool of addresses that is used up or soon will be, and how much of it is leaked? What was found in an earlier
-- boot of a node was not closed any more, and does not count.
WITH now AS (
    SELECT node, arg_max(boot_id, ts) AS boot_id
    FROM (SELECT node, boot_id, ts FROM events UNION ALL SELECT node, boot_id, ts FROM boots)
    GROUP BY node
)
SELECT node, network, subnet, stage, pool_size, pool_used, pool_leaked, pool_free, runs_out_in_ns
FROM findings JOIN now USING (node, boot_id)
WHERE kind = 'pool_exhaustion' AND closed_at IS NULL
ORDER BY pool_free, runs_out_in_ns, node, network, subnet;
