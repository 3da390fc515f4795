-- How long do restarts take, by instance type (`--boot-label instance-type=…`), kernel and the rule by which pods are back, and how
-- many missed their target? Of the boots so many are complete that took a known time: half of these took no longer than p50_ns, nine
-- of ten no longer than p90_ns. One that is not complete can have missed its target all the same.
SELECT coalesce(labels['instance-type'], '') AS instance_type, kernel, recovered, count(*) AS boots,
    count(whole_ns) AS complete, quantile_disc(whole_ns, 0.50) AS p50_ns, quantile_disc(whole_ns, 0.90) AS p90_ns,
    max(whole_ns) AS longest_ns, count(CASE WHEN outcome = 'missed' THEN 1 END) AS missed
FROM boots
GROUP BY instance_type, kernel, recovered
ORDER BY p90_ns DESC NULLS FIRST, instance_type, kernel, recovered;
