-- How long do pods take to start, by CNI plugin, its version, and kernel? Half of the comparable starts took no longer than
-- p50_ns, 99 of 100 no longer than p99_ns.
SELECT plugin, plugin_version, kernel, count() AS starts,
    arraySort(groupArray(total_ns))[intDiv(starts + 1, 2)] AS p50_ns,
    arraySort(groupArray(total_ns))[intDiv(99 * starts + 99, 100)] AS p99_ns
FROM starts FINAL
WHERE comparable
GROUP BY plugin, plugin_version, kernel
ORDER BY p99_ns DESC, plugin, plugin_version, kernel;
