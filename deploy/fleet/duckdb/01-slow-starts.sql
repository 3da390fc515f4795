-- How long do pods take to start, by CNI plugin, its version, and kernel? Half of the comparable starts took no longer than
-- p50_ns, 99 of 100 no longer than p99_ns.
SELECT plugin, plugin_version, kernel, count(*) AS starts,
    quantile_disc(total_ns, 0.50) AS p50_ns, quantile_disc(total_ns, 0.99) AS p99_ns
FROM starts
WHERE comparable
GROUP BY plugin, plugin_version, kernel
ORDER BY p99_ns DESC, plugin, plugin_version, kernel;
