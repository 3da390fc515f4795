-- How long do restarts take, by instance type (`--boot-label instance-type=…`), kernel and the rule by which pods are back, and how
-- many missed their target? Of the boots so many are complete that took a known time: half of these took no longer than p50_ns, nine
-- of ten no longer than p90_ns. One that is not complete can have missed its target all the same.
SELECT labels['instance-type'] AS instance_type, kernel, recovered, count() AS boots, count(whole_ns) AS complete,
    if(complete = 0, NULL, arraySort(groupArray(whole_ns))[intDiv(complete + 1, 2)]) AS p50_ns,
    if(complete = 0, NULL, arraySort(groupArray(whole_ns))[intDiv(9 * complete + 9, 10)]) AS p90_ns,
    max(whole_ns) AS longest_ns, countIf(outcome = 'missed') AS missed
FROM boots FINAL
GROUP BY instance_type, kernel, recovered
ORDER BY p90_ns DESC NULLS FIRST, instance_type, kernel, recovered;
