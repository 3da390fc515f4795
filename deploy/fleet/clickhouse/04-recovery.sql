-- How long do restarts take, by instance type (`--boot-label instance-type=…`) and kernel, and how many missed their target?
-- Half of the complete recoveries took no longer than p50_ns, nine of ten no longer than p90_ns.
SELECT labels['instance-type'] AS instance_type, kernel, count() AS boots,
    arraySort(groupArray(whole_ns))[intDiv(boots + 1, 2)] AS p50_ns,
    arraySort(groupArray(whole_ns))[intDiv(9 * boots + 9, 10)] AS p90_ns,
    max(whole_ns) AS longest_ns, countIf(outcome = 'missed') AS missed
FROM boots FINAL
WHERE whole_ns IS NOT NULL
GROUP BY instance_type, kernel
ORDER BY p90_ns DESC, instance_type, kernel;
