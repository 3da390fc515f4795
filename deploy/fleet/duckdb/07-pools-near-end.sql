-- Which nodes have a pool of addresses that is used up or soon will be, and how much of it is leaked?
SELECT node, network, subnet, stage, pool_size, pool_used, pool_leaked, pool_free, runs_out_in_ns
FROM findings
WHERE kind = 'pool_exhaustion' AND closed_at IS NULL
ORDER BY pool_free, runs_out_in_ns, node, network, subnet;
