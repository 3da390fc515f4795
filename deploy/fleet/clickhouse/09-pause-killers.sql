-- Who killed pause, with which signal, beside which runtime, how often, and on how many nodes?
SELECT killer, signal, runtime, count() AS kills, uniqExact(node) AS nodes
FROM findings FINAL
WHERE kind = 'teardown_out_of_order' AND killer IS NOT NULL
GROUP BY killer, signal, runtime
ORDER BY kills DESC, killer, signal, runtime;
