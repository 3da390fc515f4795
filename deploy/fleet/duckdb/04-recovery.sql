-- How long do restarts take, by instance type (`--boot-label instance-type=…`) and kernel, and how many missed their target?
-- Half of the complete recoveries took no longer than p50_ns, nine of ten no longer than p90_ns.
SELECT coalesce(labels['instance-type'], '') AS instance_type, kernel, count(*) AS boots,
    quantile_disc(whole_ns, 0.50) AS p50_ns, quantile_disc(whole_ns, 0.90) AS p90_ns, max(whole_ns) AS longest_ns,
    count(CASE WHEN outcome = 'missed' THEN 1 END) AS missed
FROM boots
WHERE whole_ns IS NOT NULL
GROUP BY instance_type, kernel
ORDER BY p90_ns DESC, instance_type, kernel;
