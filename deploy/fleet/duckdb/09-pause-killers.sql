-- Who killed pause, with which signal, beside which runtime, how often, and on how many nodes?
SELECT killer, signal, runtime, count(*) AS kills, count(DISTINCT node) AS nodes
FROM findings
WHERE kind = 'teardown_out_of_order' AND killer IS NOT NULL
GROUP BY killer, signal, runtime
ORDER BY kills DESC, killer, signal, runtime;
