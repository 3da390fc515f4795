-- Which phase takes longest in how many of a pool's starts (`--boot-label pool=…`), and how long do these take there in all?
SELECT labels['pool'] AS pool, slowest_phase, slowest_plugin, count() AS starts, sum(starts.slowest_ns) AS slowest_ns
FROM starts FINAL
WHERE comparable
GROUP BY pool, slowest_phase, slowest_plugin
ORDER BY pool, starts DESC, slowest_phase, slowest_plugin;
